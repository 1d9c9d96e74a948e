"""The subcommands, one module each, with ``add_arguments(parser)`` and ``run(arguments) -> exit code``.

Comes in: parsed arguments.
Goes out: text on stdout, files, an exit code; errors are raised as ``PhantoraError``.
May import: config, session, report, host_profile, gpu_profile, terminal, errors, wording, netsim, profiles,
virtual_time.
"""
