"""The Python API: a run from a script or a notebook, and its report as typed objects.

The command line and ``run`` both build ``RunOptions`` and have ``execution.execute`` do the rest. ``run`` does it in
a process of its own: a notebook has an event loop already, and signal handlers, threads and children of its own.
Comes in: options of a run; reports and run directories.
Goes out: a ``Run`` with steps, ranks and kernels; or an error of ``phantora_async.errors``.
May import: formats, bench, comparison, compile_cache, config, errors, known, launch, options, recording, replaying,
report, run_spec, session, trace_request, wording.
"""
