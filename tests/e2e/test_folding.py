"""A folded run has the report of the run with all processes."""

from __future__ import annotations

import pytest

from .conftest import Run

pytestmark = pytest.mark.torch


def test_data_parallel_ranks(run: Run, shared_run: Run) -> None:
    whole, folded = shared_run("ddp_amp.py", n=4), run("ddp_amp.py", n=4, options=("--fold", "dp=4"))
    assert whole.exit_code == 0, whole.output
    assert folded.exit_code == 0, folded.output
    assert folded.simulated == whole.simulated


@pytest.mark.thorough
def test_tensor_parallel_ranks(run: Run) -> None:
    whole = run("tensor_parallel.py", n=8)
    folded = run("tensor_parallel.py", n=8, options=("--fold", "dp=4,tp=2"))
    assert whole.exit_code == 0, whole.output
    assert folded.exit_code == 0, folded.output
    assert folded.simulated == whole.simulated


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("layout", "mesh"), [("hsdp", "dp_replicate=4,dp_shard=4"), ("tensor", "dp=4,tp=4"), ("pipeline", "dp=4,pp=4")]
)
def test_replicas_that_are_simulated_once(run: Run, layout: str, mesh: str) -> None:
    """As when each is."""
    each, shared = (
        run("layouts.py", layout, "4", n=16, options=("--nproc-per-node", "8", "--fold", mesh, "--replicas", replicas))
        for replicas in ("each", "shared")
    )
    assert each.exit_code == 0, each.output
    assert shared.exit_code == 0, shared.output
    assert shared.simulated | {"activity": None} == each.simulated | {"activity": None}


def test_a_group_of_part_of_an_axis_is_refused(run: Run) -> None:
    folded = run("tensor_parallel.py", n=4, options=("--fold", "dp=4", "--fold-apart", "none"))
    assert folded.exit_code == 80, folded.output
    assert "has 2 of the 4 coordinates of the folded axis dp" in folded.output
