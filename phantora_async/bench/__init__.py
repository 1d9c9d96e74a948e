"""Benchmarks: of whole runs (``phantora-async bench``) and of virtual time alone.

Lives here: what is run (jobs), one run and what it takes (measurement), the history of results and their comparison
(history), the table (tables), the picture (plot), functions that take time (profile), virtual time alone
(virtual_time).
Comes in: jobs and numbers of ranks; command lines, ``python -m phantora_async.bench.virtual_time``.
Goes out: figures, as text, picture and JSON.
May import: formats, emu.contract, netsim, profiles, coordinator, ingest, liveness, virtual_time, child_process, errors.
"""
