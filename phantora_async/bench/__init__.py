"""Benchmarks of whole runs (``phantora-async bench``).

Lives here: what is run (jobs), one run and what it takes (measurement), the history of results and their comparison
(history), the table (tables), the picture (plot), functions that take time (profile).
Comes in: jobs and numbers of ranks.
Goes out: figures, as text, picture and JSON.
May import: formats, emu.contract, ingest, liveness, child_process, errors.
"""
