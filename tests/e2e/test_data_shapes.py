"""`--data-shapes`: how large tensors are whose sizes follow from values that nobody computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import SCRIPTS, Finished, Run, needs, ranks_have

pytestmark = pytest.mark.torch
EXAMPLE = Path(__file__).parents[2] / "examples" / "detection.py"


def told(done: Finished) -> dict[str, Any]:
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(next(line for line in done.log(0).splitlines() if line.startswith("{")))
    return found


def test_each_operation_has_the_most_but_where_the_trace_states_a_size(run: Run, tmp_path: Path) -> None:
    lines = (SCRIPTS / "data_shapes.py").read_text().splitlines()
    place = next(f"data_shapes.py:{number}" for number, line in enumerate(lines, 1) if line.endswith("# stated"))
    trace = tmp_path / "sizes.txt"
    trace.write_text(f"{place} 5, 25%, 999\nunique_dim 8  # rows\n")
    done = run("data_shapes.py", n=1, options=("--data-shapes", f"trace:{trace}"))
    sizes_told = told(done)
    if ranks_have("torchvision"):
        assert sizes_told.pop("boxes") == [[2, 1], [2, 1, 0]], "of known boxes, those that overlap too little"
    assert sizes_told == {
        "mask": 64,
        "settled": [64, 0],
        "select": 256 * 256,
        "two dimensions": [64, 2],
        "large": [[256 * 256, 2], [0, 3]],
        "classes": [32, 32],
        "classes in inference mode": [32, 32],
        "levels": [32, 32, 0, 0],
        "unique": [64, 64, 64, 63],
        "unique bools": 2,
        "unique rows": [8, 10],
        "consecutive": 64,
        "repeat": 64,
        "stated": [5, 16, 64],
        "coalesced": [True, True],
        "coalesced unknown": 256,
        "checks": [0, 64],
        "counted": [0, 0],
        "known": [8, 9, 5],
    }
    sizes = done.simulated["data_shapes"]
    assert sizes["policy"] == f"trace:{trace}"
    (stated,) = (one for one in sizes["places"] if one["inner"].endswith(place))
    assert (stated["operation"], stated["calls"], stated["most"], stated["chosen"]) == ("nonzero", 3, 192, 85)
    assert f"they follow the policy trace:{trace} (--data-shapes)" in done.output
    warned = [one["text"] for one in done.simulated["warnings"]]
    assert sum("it has 64 of 64, by the policy of --data-shapes" in text for text in warned) >= 3
    assert not any("scripts/data_shapes.py:36" in one["inner"] for one in sizes["places"]), "a check is no size"


@pytest.mark.thorough
def test_a_detector_trains_on_as_many_boxes_as_it_samples(run: Run) -> None:
    """512 of an image by default, a quarter of them with masks; without data no proposal is left but the objects."""
    needs("torchvision")
    runs = {
        policy: run(str(EXAMPLE), "--masks", "--steps", "2", n=1, options=("--data-shapes", policy))
        for policy in ("most", "fraction:0")
    }
    pooled = {}
    for policy, done in runs.items():
        assert done.exit_code == 0, done.output
        signatures = done.simulated["kernels"]["signatures"]
        pooled[policy] = {one["title"] for one in signatures if "x=256x256x14x14" in one["title"]}
    assert pooled["most"]
    assert not pooled["fraction:0"]
    assert runs["most"].simulated["step"]["median_ns"] > 1.05 * runs["fraction:0"].simulated["step"]["median_ns"]
