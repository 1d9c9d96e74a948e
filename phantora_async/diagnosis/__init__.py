"""What ranks are doing and why a run failed, in words.

Here: each rank's state and for whom it waits (rank_states), the status line (progress), the details of a failure
(failure_report).
In: a ``virtual_time.Snapshot``, what ``ingest.FactBuilder`` knows of ranks, a ``RunFailure``.
Out: text for people, entries of the report.
Imports: emu.contract, errors, wording, ingest, virtual_time.
"""
