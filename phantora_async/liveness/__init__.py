"""Are ranks that send nothing busy or asleep, where are they, and how long have others waited for them?

Here: sleeping threads (sleep_detector), ranks that are passed over (blocked_ranks), Python stacks (rank_stacks), waits
that the user should know of (stall_watch).
In: process ids, /proc, the rank that virtual time waits for.
Out: a verdict for ``coordinator.standstill``, a ``Stall`` for the status line, call sites.
Imports: emu.contract, wording, ingest, virtual_time.
"""
