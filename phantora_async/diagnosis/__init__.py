"""Says in words what ranks are doing and why a run failed.

Lives here: each rank's state and for whom it waits (rank_states), the status line (progress), the details of a failure
(failure_report).
Comes in: a ``virtual_time.Snapshot``, what ``ingest.FactBuilder`` knows of ranks, a ``RunFailure``.
Goes out: text for people, entries of the report.
May import: emu.contract, errors, wording, ingest, virtual_time.
"""
