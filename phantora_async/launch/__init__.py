"""Processes of a run: how they are started on this machine, what they need of it, and how they are ended.

Lives here: folder, port and limits that a run needs (`runtime`), the forker's messages (`launcher`), its process
(`forker_process`), interpreters that are kept for later runs (`warm_interpreters`, `warm_keeper`), the process that
joins the servers' networks (`server_network`), a machine that runs servers for another's coordinator (`joining`).
Comes in: a `Config`; messages of the forker, as `emu.contract.messages` defines them.
Goes out: processes that have started or ended, to the session.
May import: emu.contract, compile_cache, config, errors, liveness, remote, virtual_time.
"""
