"""The product: command line, coordinator, virtual time, reports. Never imports torch.

A command (cli, commands) is resolved (config) and run (session): the launcher starts the forker, from which ranks are
forked; their records arrive in ``ingest`` and become facts; ``virtual_time`` executes the facts; ``coordinator`` drives
both; ``liveness`` watches ranks that send nothing; ``diagnosis`` and ``report`` say what happened.
Of ``emu``, only ``emu.contract`` is imported.
"""
