"""The differences that the driver finds when it compares folded with unfolded jobs."""

from __future__ import annotations

from tests.e2e.folded_jobs import JOBS, differences


def test_differences_are_told_by_their_paths() -> None:
    one = {"a": 1, "b": [1, {"c": 2}], "d": [1]}
    assert list(differences(one, {"a": 1, "b": [1, {"c": 3}], "d": [1, 2], "e": 0})) == [".b[1].c", ".d", ".e"]
    assert not list(differences(one, one))


def test_a_mesh_has_all_ranks() -> None:
    assert JOBS["megatron"].mesh_of(64) == "pp=2,dp=16,tp=2"
