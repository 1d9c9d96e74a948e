"""Memory that ranks hold on GPUs of others is these GPUs' memory, for every process of the server and in the report."""

from __future__ import annotations

import re

import pytest

from profiles import load_gpu

from .conftest import Run

pytestmark = pytest.mark.torch
MIB = 1 << 20
MEMORY = load_gpu("h200").memory


def test_all_processes_of_a_server_see_what_is_on_a_gpu(shared_run: Run) -> None:
    """Less by the tensor and a context. Before, rank 0 used 512 MiB, small segments of the allocator, and what NCCL's
    kernels and communicator take: 874 MiB, with PyTorch 2.11 32 MiB less.
    """
    done = shared_run("guests.py")
    assert done.exit_code == 0, done.output
    text = done.log(0) + done.log(1)
    used = set(re.findall(r"^FREE (\d+)$", text, re.MULTILINE))
    assert len(used) == 1
    before = MEMORY.reserved_nbytes + (840 + 512) * MIB
    assert before < int(used.pop()) < before + 122 * MIB
    assert re.findall(r"^LESS (\d+)$", text, re.MULTILINE) == [str(256 * MIB + MEMORY.context_nbytes)] * 2


def test_the_report_names_ranks_size_and_line(shared_run: Run) -> None:
    done = shared_run("guests.py")
    worker, guest = done.simulated["memory"]["guests"]
    assert (guest["gpu"], guest["owner"], guest["ranks"], guest["nbytes"]) == (0, 0, [1], 256 * MIB)
    assert "guests.py:37" in guest["site"]
    assert not guest["children"]
    assert (worker["gpu"], worker["owner"], worker["ranks"], worker["nbytes"]) == (0, 0, [1], 128 * MIB)
    assert "guests.py:22" in worker["site"]
    assert worker["children"]
    parts = done.simulated["ranks"][0]["memory"]["parts"]
    assert parts["other ranks"] == 256 * MIB + 128 * MIB + 2 * MEMORY.context_nbytes
    own = done.simulated["ranks"][0]["memory"]["device_peak_nbytes"]
    assert own < (874 + 64 + 600) * MIB, "with the cuBLAS handle of autograd's thread"
    verdict = done.simulated["memory"]["verdict"]
    assert (verdict["rank"], verdict["needed_nbytes"]) == (0, sum(parts.values()))
    assert not done.simulated["independent"]
