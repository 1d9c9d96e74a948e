"""Measurements of single signatures on a real GPU (emu.gpubench), tried on the emulated one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Run

pytestmark = pytest.mark.torch
GEMM, FORWARD, BACKWARD, CONV, MEMSET, COPY, TRITON, ADD = range(8)


@pytest.fixture
def found(run: Run) -> dict[str, Any]:
    done = run("measured_again.py", n=1)
    assert done.exit_code == 0, done.output
    line = next(line for line in done.output.splitlines() if line.startswith("FOUND "))
    told: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return told


def test_every_kind_of_work_is_executed_and_its_kernels_are_seen(found: dict[str, Any]) -> None:
    assert any(
        "CUDAFunctor_add<c10::BFloat16>" in kernel["name"] and kernel["grid"] == [512, 1, 1]
        for one in found["tried"]
        for kernel in one.get("kernels", ())
    )
    times = found["times"]
    for number in (GEMM, FORWARD, BACKWARD, CONV, MEMSET, COPY, ADD):
        assert set(times[number]) == {"written"}, times[number]
        for state in times[number].values():
            assert len(state) == 10
            assert all(kernels and all(kernel["us"] > 0 for kernel in kernels) for kernels in state)
    assert times[MEMSET]["written"][0][0]["cat"] == "gpu_memset"
    assert times[COPY]["written"][0][0]["cat"] == "gpu_memcpy"
    assert times[COPY]["written"][0][0]["bytes"] == 40960
    assert "by itself" in times[TRITON]["error"]
