"""Ranks share propagated shardings, and nothing else changes."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path

import pytest

from .conftest import Finished, Run

pytestmark = pytest.mark.torch


def computed(done: Finished, folder: Path) -> Counter[str]:
    """Returns how often all ranks together propagated the sharding of which operator."""
    assert done.exit_code == 0, done.output
    total: Counter[str] = Counter()
    for rank in range(4):
        total.update(ast.literal_eval((folder / f"computed{rank}").read_text()))
    return total


def test_one_rank_propagates_the_shardings_of_lists_for_all(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where objects are makes no difference: a longer environment moves all of them."""
    options = ("--nproc-per-node", "2")
    shared = run("sharded_updates.py", str(tmp_path), n=4, options=options)
    together = computed(shared, tmp_path)
    monkeypatch.setenv("PHANTORA_TEST_LONGER", "x" * 300)
    own = run("sharded_updates.py", str(tmp_path), n=4, options=(*options, "--no-shared-weights"))
    alone = computed(own, tmp_path)
    assert together, "what this test is about"
    assert alone == Counter({name: 4 * n for name, n in together.items()})
    assert json.dumps(shared.simulated, sort_keys=True) == json.dumps(own.simulated, sort_keys=True)


@pytest.mark.thorough
@pytest.mark.parametrize(("script", "wanted"), [("sharded_updates.py", True), ("tensor_parallel.py", False)])
def test_simulated_time_does_not_depend_on_where_objects_are(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, wanted: bool
) -> None:
    """A longer environment and a longer path move all objects; tables of DTensor then compare other keys."""
    args = [str(tmp_path)] if wanted else []
    first = run(script, *args, n=4)
    monkeypatch.setenv("PHANTORA_TEST_LONGER", "x" * 300)
    deep = tmp_path.joinpath(*["x" * 40] * 3, "run")
    deep.parent.mkdir(parents=True)
    second = run(script, *args, n=4, options=("--run-dir", str(deep)))
    assert first.exit_code == second.exit_code == 0, first.output + second.output
    assert json.dumps(first.simulated, sort_keys=True) == json.dumps(second.simulated, sort_keys=True)
