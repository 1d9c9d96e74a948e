"""Answers to processes of a folded run, of what the ranks that they play would be."""

from __future__ import annotations

from emu.contract import records
from phantora_async.folding import Folding, mesh_of
from phantora_async.folding.answers import RoleAnswers


def test_the_rank_that_comes_first_decides_what_its_role_is_told() -> None:
    folding = Folding(mesh_of("dp=4,tp=2", 8), frozenset((0,)))
    answers = RoleAnswers(folding, folding.mirrored)

    def clock(qid: int, now_ns: int) -> bytes:
        return records.Clock.encode(qid, now_ns, 1)

    assert answers.first([(0, clock(1, 50)), (4, clock(1, 60))]) == [(0, clock(1, 50)), (2, clock(1, 60))]
    assert answers.first([(2, clock(1, 64)), (6, clock(1, 60)), (6, clock(2, 80))]) == [(2, clock(2, 80))]
    assert (answers.differing.times, answers.differing.most_ns, answers.differing.states) == (1, 4, 0)
    done = records.Done.encode
    assert answers.first([(3, done(9, 1, 1)), (1, done(9, 0, 1))]) == [(1, done(9, 1, 1))]
    assert answers.differing.states == 1
