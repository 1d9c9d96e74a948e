"""Finds out whether ranks that send nothing are busy or asleep, where they are, and how long others have waited for
them.

Lives here: threads (proc_fs), whether they sleep (sleep_detector), ranks that are passed over (blocked_ranks), Python
stacks of ranks (rank_stacks), waits that the user is told of (stall_watch), loops that only a value can
end (loop_watch).
Comes in: process ids, /proc, the rank that virtual time waits for.
Goes out: a verdict for ``coordinator.standstill``, a ``Stall`` for the status line, call sites.
May import: emu.contract, wording, ingest, virtual_time.
"""
