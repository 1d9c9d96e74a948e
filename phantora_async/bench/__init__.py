"""Benchmarks of the product's parts.

Comes in: command lines, ``python -m phantora_async.bench.virtual_time``.
Goes out: figures on stdout.
May import: emu.contract, netsim, profiles, coordinator, ingest, virtual_time.
"""
