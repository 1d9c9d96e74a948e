"""A small language model trains on every described GPU, whether PyTorch was built for its very version or not."""

from __future__ import annotations

import pytest

import profiles

from .conftest import Run

pytestmark = pytest.mark.torch
OWN_CODE = {"b300", "l40s", "v100"}
"""One GPU of each compute capability that PyTorch's wheels have no code of its own for: 10.3, 8.9, and 7.0, which
only builds for CUDA 12 have. The other GPUs run what one of these or an H200 runs.
"""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.versions if name in OWN_CODE else pytest.mark.thorough)
        for name in profiles.gpu_names()
    ],
)
def test_a_language_model_trains(name: str, run: Run) -> None:
    gpu = profiles.load_gpu(name)
    done = run("language_model.py", n=1, options=("--gpu", name))
    assert done.exit_code == 0, done.output
    assert f"on {gpu.device_name}, ({gpu.cc_major}, {gpu.cc_minor})" in done.output
    assert "PASSED" in done.output
    assert len(done.simulated["step"]["each_ns"]) >= 2
    # Machine code of another major version does not run: a wheel without any for this one is told.
    told = [warning["text"] for warning in done.simulated["warnings"] if "no code for a GPU" in warning["text"]]
    lacks = f"which is of compute capability (CC) {gpu.cc_major}.{gpu.cc_minor}" in done.output  # PyTorch's own words
    assert len(told) == lacks, done.output
