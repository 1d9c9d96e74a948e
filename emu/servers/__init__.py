"""Emulated servers in namespaces of their own: what a server shares with others, and what it does not.

Lives here: Linux's calls (`linux`), the ids of user namespaces (`id_maps`), what a server sees of the file system
(`file_system`, `kernel_files`), a process that becomes a server (`admission`), and the namespaces of a run
(`run_namespaces`).
Comes in: the job; the socket of the process that joins the servers' networks.
Goes out: processes in namespaces of their own; CannotIsolate where the kernel forbids them.
May import: `emu.contract`; the standard library.
"""
