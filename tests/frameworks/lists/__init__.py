"""Test lists of the frameworks themselves, run unmodified on emulated GPUs.

In: the name of a list and a clone of the framework's repository. Out: a verdict for each test, which
docs/data/test-lists.json keeps and docs/data/test-lists.md shows.
"""
