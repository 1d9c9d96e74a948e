"""Since when ranks have called a communicator's collectives in different lines."""

from __future__ import annotations

import pytest

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.errors import Deadlock, Mismatch
from phantora_async.ingest.collective_matching import CollectiveMatching
from phantora_async.ingest.communicators import Communicators
from phantora_async.virtual_time import Timelines

from .test_communicators import world

SAVE, LAST, TRAIN = 13, 20, 8
"""Lines of a program."""


def matching_of(ranks: list[int]) -> tuple[CollectiveMatching, int]:
    """Makes a matching in which a call site is the number of its line; 0 is none that is known."""
    timelines = Timelines(8)
    communicators = Communicators(timelines)
    matching = CollectiveMatching(communicators, timelines, lambda rank, site: site or None)
    return matching, world(communicators, ranks)


def call(comm: int, seq: int, op: int = NcclKind.ALL_REDUCE, peer: int = 0) -> records.NcclOp:
    return records.NcclOp(comm, seq, op, 7, 0, peer, 1, 0, 0, 1.0)


def test_a_call_that_only_one_rank_makes_is_found_where_it_was_made() -> None:
    """Rank 0's barrier while it saves is paired with the others' last barrier, and nobody is left for its own last."""
    matching, comm = matching_of([0, 1, 2])
    for rank in range(3):
        matching.join(rank, call(comm, 0), TRAIN)
    matching.join(0, call(comm, 1), SAVE)
    matching.join(0, call(comm, 2), LAST)
    for rank in (1, 2):
        matching.join(rank, call(comm, 1), LAST)
    with pytest.raises(Deadlock, match=r"rank 1 ended without calling all_reduce #2"):
        matching.rank_ended(1)
    ((side, last),) = matching.differing_lines()
    assert side.call.startswith("all_reduce #1 of 1 f32 (sum)")
    assert dict(zip(side.ranks, side.sites, strict=True)) == {0: SAVE, 1: LAST, 2: LAST}
    assert not last


def test_calls_of_different_lines_are_remembered_when_ranks_meet_in_one_line_again() -> None:
    """An additional forward pairs with the others' forward, and then the forward with their backward of one line."""
    matching, comm = matching_of([0, 1])
    for seq, lines in enumerate([(SAVE, LAST), (TRAIN, TRAIN), (SAVE, TRAIN), (LAST, TRAIN), (TRAIN, TRAIN)]):
        for rank, line in enumerate(lines):
            matching.join(rank, call(comm, seq), line)
    matching.join(0, call(comm, 5), TRAIN)
    ((side, last),) = matching.differing_lines()
    assert side.call.startswith("all_reduce #2 of")
    assert dict(zip(side.ranks, side.sites, strict=True)) == {0: SAVE, 1: TRAIN}
    assert last.startswith("all_reduce #3 of")


def test_ranks_that_have_not_called_what_others_disagree_on_are_awaited() -> None:
    matching, comm = matching_of([0, 1, 2, 3])
    assert matching.disagreeing() == set()
    matching.join(0, call(comm, 0), TRAIN)
    with pytest.raises(Mismatch):
        matching.join(1, call(comm, 0, NcclKind.BROADCAST), TRAIN)
    assert matching.disagreeing() == {2, 3}
    with pytest.raises(Deadlock):
        matching.rank_ended(3)
    with pytest.raises(Mismatch):
        matching.join(2, call(comm, 0, NcclKind.BROADCAST), TRAIN)
    assert matching.disagreeing() == set()


def test_the_first_of_several_is_told() -> None:
    matching, comm = matching_of([0, 1])
    for seq, lines in enumerate([(TRAIN, TRAIN), (SAVE, LAST), (LAST, TRAIN), (TRAIN, LAST)]):
        for rank, line in enumerate(lines):
            matching.join(rank, call(comm, seq), line)
    matching.join(0, call(comm, 4), TRAIN)
    with pytest.raises(Mismatch):
        matching.join(1, call(comm, 4, NcclKind.BROADCAST), TRAIN)
    assert [side.call.split()[1] for side, _ in matching.differing_lines()] == ["#1"]


@pytest.mark.parametrize("lines", [(0, TRAIN), (0, 0)])
def test_a_line_that_is_not_known_differs_from_none(lines: tuple[int, int]) -> None:
    matching, comm = matching_of([0, 1])
    for rank, line in enumerate(lines):
        matching.join(rank, call(comm, 0), line)
    matching.join(0, call(comm, 1), TRAIN)
    assert matching.differing_lines() == []


def test_messages_are_sent_and_received_in_different_lines() -> None:
    matching, comm = matching_of([0, 1])
    matching.join(0, call(comm, 0, NcclKind.SEND, 1), SAVE)
    matching.join(1, call(comm, 0, NcclKind.RECV, 0), LAST)
    matching.join(0, call(comm, 0), TRAIN)
    assert matching.differing_lines() == []


def test_a_communicator_on_which_nobody_waits_is_not_told() -> None:
    matching, comm = matching_of([0, 1])
    for rank, line in enumerate((SAVE, LAST)):
        matching.join(rank, call(comm, 0), line)
    assert matching.differing_lines() == []
