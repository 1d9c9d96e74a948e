"""Training frameworks in emulation: one table of jobs, its runner, and docs/frameworks.md, which is written from it.

Comes in: `rows/`, the jobs of each framework. Goes out: tests of the small jobs, all others as `pytest -m frameworks`,
and `python -m tests.frameworks --write`.
"""
