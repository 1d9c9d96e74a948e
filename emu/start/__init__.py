"""The processes of a run: one forker, a process for each server, a process for each rank.

Lives here: which versions of Python and PyTorch are `supported`, the `forker` and what it does before it forks
(`prepare`), the `server`, the `rank` and how it runs the script (`program`, `script`), the user's launcher
(`launching`), processes that a server's programs ask for (`warm_children`), and what keeps all these together
(`processes`).
Comes in: the job's description and "terminate", from the launcher.
Goes out: "ready", "isolation", "started", "took", "exited", "dismissed", "command_ended", "server_lost", "failed" and
"done", to the launcher; the ranks' logs.
May import: `emu.contract`, `emu.servers`, `emu.interpreter`, `emu.clock`, `emu.control`, `emu.loading`; torch and the
standard library.
"""
