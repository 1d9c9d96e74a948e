"""Blocks of Python's data stack: a process keeps some that are empty."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parents[3] / "emu" / "lib" / "libcuda.so.1"
CALLS, DEEPEST = 500, 300
COUNTS_FAULTS = f"""
import ctypes, resource, sys
if sys.argv[1:]:
    ctypes.CDLL(sys.argv[1]).phantora_keep_data_stack()

def leaf(a, b, c):
    return a

def at(depth):
    if depth:
        return at(depth - 1)
    for _ in range({CALLS}):
        leaf(1, 2, 3)

at({DEEPEST})
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for depth in range({DEEPEST}):
    at(depth)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.parametrize("keeps", [False, True])
def test_calls_at_the_edge_of_a_block_take_no_page_faults(keeps: bool) -> None:
    """Somewhere in this recursion each call of `leaf` needs a new block."""
    command = [sys.executable, "-c", COUNTS_FAULTS, *([str(LIBRARY)] if keeps else [])]
    faults = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert (faults < CALLS) is keeps
