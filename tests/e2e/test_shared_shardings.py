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
    """How often all ranks together propagated the sharding of which operator."""
    assert done.exit_code == 0, done.output
    total: Counter[str] = Counter()
    for rank in range(4):
        total.update(ast.literal_eval((folder / f"computed{rank}").read_text()))
    return total


def test_one_rank_propagates_the_shardings_of_lists_for_all(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--nproc-per-node", "2")
    shared = run("sharded_updates.py", str(tmp_path), n=4, options=options)
    together = computed(shared, tmp_path)
    own = run("sharded_updates.py", str(tmp_path), n=4, options=(*options, "--no-shared-weights"))
    alone = computed(own, tmp_path)
    assert together, "what this test is about"
    assert alone == Counter({name: 4 * n for name, n in together.items()})
    assert json.dumps(shared.simulated, sort_keys=True) == json.dumps(own.simulated, sort_keys=True)

    # A longer environment moves all objects; tables of DTensor then compare other keys.
    monkeypatch.setenv("PHANTORA_TEST_LONGER", "x" * 300)
    moved = run("sharded_updates.py", str(tmp_path), n=4, options=options)
    assert moved.exit_code == 0, moved.output
    assert json.dumps(moved.simulated, sort_keys=True) == json.dumps(shared.simulated, sort_keys=True)
