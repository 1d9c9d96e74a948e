"""How messages write ranks."""

from __future__ import annotations

from phantora_async.wording import compact, named


def test_numbers_of_ranks_read_well() -> None:
    assert compact([3, 1, 2, 7]) == "1-3,7"
    assert compact(range(0, 64, 8)) == "0-56:8"
    assert compact([0, 8]) == "0,8"
    assert named([5]) == "rank 5"
    assert named(range(4)) == "ranks 0-3"
