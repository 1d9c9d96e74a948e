"""Streams, events, graphs, copies and the launch queue in a PyTorch program, by CUDA's rules: docs/data/cuda-rules.md.

The host costs nothing here (``--host none``) but for what reading clocks takes: times are whole multiples of a kernel.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Run

pytestmark = pytest.mark.torch
NOTHING = pytest.approx(0, abs=0.01)
STAGING = pytest.approx(0.07, abs=0.03)
"""Copying 1 MiB from pageable memory."""
TWO = 1.8
"""Kernels that two of them take which fill the GPU side by side (phantora_async/virtual_time/streams.py)."""


def about(kernels: float) -> Any:
    return pytest.approx(kernels, abs=0.01)


@pytest.fixture
def found(run: Run) -> dict[str, Any]:
    done = run("cuda_semantics.py", n=1, options=("--host", "none"))
    assert done.exit_code == 0, done.output
    line = next(line for line in done.output.splitlines() if line.startswith("FOUND "))
    measured: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return measured


def test_a_pytorch_program_finds_cuda_s_rules(found: dict[str, Any]) -> None:
    """One run: a job takes seconds, its answers are looked at one by one."""
    # side: three kernels; other: one behind the second of them, beside the third
    assert found["wait_event"] == about(2 + TWO)
    assert found["side_stream_s_own_end"] == about(2 + TWO)
    assert found["between_streams"] == about(TWO)
    # the waiter holds on to the event's first record
    assert found["recorded_again_waiter"] == about(1)
    assert found["recorded_again"] == about(2)
    assert found["never_recorded_query"] is True
    assert found["never_recorded_synchronize"] == NOTHING
    # before completion and after it
    assert found["elapsed_before_completion"] in ("RuntimeError", "ValueError")
    assert found["query_loop_asked"] > 1
    assert found["query_loop"] == pytest.approx(1, abs=0.1)
    assert found["query_afterwards"] == [True, True]
    # ten kernels are under way: which copies wait for them?
    assert found["copies"] == {
        "pinned to device, non_blocking": NOTHING,
        "device to pinned, non_blocking": NOTHING,
        "device to device": NOTHING,
        "pinned to device": pytest.approx(10, abs=0.1),
        "device to pinned": pytest.approx(10, abs=0.1),
        "pageable to device, non_blocking": STAGING,
        "device to pageable, non_blocking": pytest.approx(10, abs=0.1),
        "item": pytest.approx(10, abs=0.1),
    }
    # four kernels, two of them beside each other
    assert found["capture"] == NOTHING
    assert found["replay_host"] == NOTHING
    assert found["replay"] == about(2 + TWO)
    assert found["second_replay"] == about(2 + TWO)
    assert "error during capture" in found["synchronize_in_a_capture"]
    assert found["after_a_broken_capture"] == about(1)
    # twenty kernels are under way: 700 launches find room in the queue, of 1,400 about 1,024 do; they leave it in
    # portions of up to 256
    free, full = found["launches"]
    assert free == NOTHING
    assert 20 + (1400 - 1024) * found["small"] - 0.1 <= full <= 20 + (1400 - 1024 + 256) * found["small"] + 0.1
