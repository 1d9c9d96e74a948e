"""Which process groups of a folded run are made."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from emu.folding.ranks import FoldedRanks
from phantora_async.config.folding import unchecked
from phantora_async.folding import Folding, mesh_of

FOLDING = Folding(mesh_of("dp=8,tp=2", 16), frozenset((0, 15)))
"""Ranks 1 and 2 are representatives."""


@pytest.mark.parametrize(
    ("members", "left_out"),
    [
        ((6, 8), True),
        ((6, 7, 3), False),  # 3 is simulated
        ((4, 2), False),  # 2 has a process
        (None, False),  # all ranks
        ((), False),
        ((6, 6), False),  # what is refused
        ((6, 16), False),
        ((-1, 6), False),
    ],
)
def test_groups_of_ranks_that_are_not_simulated_are_left_out(members: Sequence[int] | None, left_out: bool) -> None:
    assert FoldedRanks(FOLDING, (0, 1, 2, 3, 14, 15)).leaves_out(members) is left_out


def test_where_all_ranks_are_simulated_all_groups_are_made() -> None:
    assert not FoldedRanks(FOLDING, None).leaves_out((6, 8))


def test_a_mesh_of_which_nobody_is_played_has_nothing_to_check() -> None:
    each = Folding(mesh_of("dp*=1+1,tp=2", 4))
    assert each.live == (0, 1, 2, 3)
    assert unchecked(each) == "--fold: all 4 ranks have processes, as no two are found to do the same"
