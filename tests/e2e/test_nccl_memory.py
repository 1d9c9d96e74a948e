"""NCCL's memory: the script, the report and the verdict count what two H200s showed."""

from __future__ import annotations

import pytest

from profiles import load_gpu

from .conftest import Run

pytestmark = pytest.mark.torch
MIB = 1 << 20


def test_free_memory_falls_with_communicators_and_messages(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """laboratory/rows/nccl-memory-h200-x2.jsonl: 840 MiB with the first, 484 with the next, 442 with messages."""
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    done = run("nccl_memory.py", options=("--gpu", "h200"))
    assert done.exit_code == 0, done.output
    assert done.log(0) == done.log(1) == "TAKEN 840 484 442\n"
    memory = done.simulated["memory"]
    outside = load_gpu("h200").memory.reserved_nbytes + (840 + 484 + 442) * MIB
    assert memory["fullest"]["parts"]["outside PyTorch"] == outside
    assert memory["verdict"]["needed_nbytes"] == outside + memory["max_reserved_nbytes"]


@pytest.mark.thorough
def test_the_verdict_knows_what_nccl_found_no_room_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    done = run("nccl_without_room.py", options=("--gpu", "h200"))
    assert done.exit_code == 1, done.output
    assert "Cuda failure 2 'out of memory'" in done.log(0)
    verdict = done.simulated["memory"]["verdict"]
    assert not verdict["fits"]
    assert not verdict["fragmented"]
    free = verdict["asked_nbytes"] - verdict["missing_nbytes"]
    assert 96 * MIB <= free <= 100 * MIB, "the script leaves 100 MiB, in blocks of 2 MiB"
    assert verdict["site"].endswith("nccl_without_room.py:10")
