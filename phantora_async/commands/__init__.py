"""The subcommands, one module each, with ``add_arguments(parser)`` and ``run(arguments) -> exit code``.

In: parsed arguments.
Out: text on stdout, files, an exit code; errors are raised as ``PhantoraError``.
Imports: config, session, report, errors, wording, netsim, profiles, virtual_time.
"""
