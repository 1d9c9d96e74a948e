"""Benchmarks: they print figures and pass no judgement. Run from the checkout as ``python -m tests.bench.NAME``."""
