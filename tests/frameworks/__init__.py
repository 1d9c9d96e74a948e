"""Training frameworks in emulation: a table of jobs, its runner, and docs/data/frameworks.md, written from it.

Comes in: `rows/`, the jobs of each framework. Goes out: tests of the small jobs, all others as `pytest -m frameworks`,
and `python -m tests.frameworks --write`.
"""
