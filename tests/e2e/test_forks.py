"""Processes that a rank forks: as with CUDA, they can use its GPU if the rank has not."""

from __future__ import annotations

import pytest

from .conftest import Run

pytestmark = pytest.mark.torch


def test_a_process_forked_before_cuda_is_used_trains_and_one_forked_after_it_cannot(run: Run) -> None:
    done = run("forks.py", n=1)
    assert done.exit_code == 0, done.output
    lines = done.log(0).splitlines()
    assert lines[:4] == [*["slept 5 s"] * 3, "3.0"]
    (refused,) = (line for line in lines if line.startswith("after: "))
    assert refused.startswith("after: Cannot re-initialize CUDA in forked subprocess.")
    step = done.simulated["step"]
    assert step["source"] == "optimizer markers on rank 0"
    assert [round(each_ns / 1e9) for each_ns in step["each_ns"]] == [5, 5]
    assert done.simulated["ranks"][0]["memory"]["allocated_peak_nbytes"] > 3 * 1024 * 1024 * 4, "those of the child"
