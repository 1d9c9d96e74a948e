"""The measurements of `phantora-async profile`, one module each: this machine's host, the kernels of a script, those
that a sweep covers, those that a report misses.

Comes in: parsed arguments (``add_arguments(group)``, ``run(arguments) -> exit code``).
Goes out: files that `run` takes (``--kernel-times``, host descriptions); an exit code.
May import: config, local_gpus, host_profile, gpu_profile, options, report, terminal, errors, wording, profiles,
formats.
"""
