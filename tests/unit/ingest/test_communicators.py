"""Which ranks make up a communicator."""

from __future__ import annotations

from struct import pack

import pytest

from emu.contract import records
from netsim.collectives import CommunicatorMemory
from phantora_async.errors import Deadlock, Mismatch
from phantora_async.ingest.communicators import Answers, Communicators, stated_members
from phantora_async.virtual_time import Timelines


def init(rank: int, place: int, size: int, unique: bytes = b"id") -> records.CommInit:
    return records.CommInit(64, 0, 0, 0, 1000 + rank, size, place, rank % 8, 0, unique.ljust(128, b"\0"))


def split(rank: int, parent: int, color: int, key: int, seq: int = 0) -> records.CommSplit:
    return records.CommSplit(65, 0, 0, 0, 2000 + rank, parent, color, key, seq, b"")


def decoded(answers: Answers) -> dict[int, records.Comm]:
    result = {}
    for rank, encoded in answers:
        (answer,), _ = records.decode_down(encoded)
        assert isinstance(answer, records.Comm)
        result[rank] = answer
    return result


def world(communicators: Communicators, ranks: list[int], unique: bytes = b"id") -> int:
    """Returns the id of a communicator of these world ranks, in this order."""
    answers: Answers = []
    for place, rank in enumerate(ranks):
        assert answers == []
        _, answers = communicators.init(rank, init(rank, place, len(ranks), unique))
    return decoded(answers)[ranks[0]].comm


def test_members_are_answered_when_the_last_has_asked() -> None:
    communicators = Communicators(Timelines(8))
    assert communicators.init(4, init(4, 1, 2)).answers == []
    _, answers = communicators.init(2, init(2, 0, 2))
    got = decoded(answers)
    assert {rank: (a.qid, a.rank, a.nranks) for rank, a in got.items()} == {2: (1002, 0, 2), 4: (1004, 1, 2)}
    assert communicators.by_id[got[2].comm].members == (2, 4)


def test_answers_say_what_nccl_takes_of_each_members_gpu() -> None:
    communicators = Communicators(
        Timelines(8),
        lambda comm, rank: CommunicatorMemory(made=rank << 20, ring=len(comm.members), first_near=1, near=2),
    )
    communicators.init(4, init(4, 1, 2))
    got = decoded(communicators.init(2, init(2, 0, 2)).answers)
    assert {rank: (a.made_nbytes, a.ring_nbytes, a.first_near, a.near) for rank, a in got.items()} == {
        2: (2 << 20, 2, 1, 2),
        4: (4 << 20, 2, 1, 2),
    }
    communicators.split(2, split(2, got[2].comm, 0, 0))
    parts = decoded(communicators.split(4, split(4, got[4].comm, -1, 0)).answers)
    assert (parts[2].made_nbytes, parts[2].ring_nbytes, parts[4].made_nbytes) == (2 << 20, 1, 0)


def test_ids_depend_on_nothing_but_the_members_calls() -> None:
    first, second = Communicators(Timelines(8)), Communicators(Timelines(8))
    assert world(first, [0, 1, 2]) == world(second, [0, 1, 2])
    assert world(first, [0, 1, 2]) != world(second, [0, 1, 2], b"other")


def test_communicators_of_the_same_ranks_can_be_told_apart() -> None:
    communicators = Communicators(Timelines(8))
    labels = [
        communicators.by_id[world(communicators, ranks, unique)].label
        for ranks, unique in (([0, 1], b"a"), ([0, 1], b"b"), ([0, 2], b"c"), ([1, 0], b"d"))
    ]
    assert labels == [
        "communicator of ranks 0-1",
        "communicator of ranks 0-1 (their number 2)",
        "communicator of ranks 0,2",
        "communicator of ranks 0-1 (their number 3)",
    ]


def test_a_split_orders_by_key_then_by_the_parents_rank() -> None:
    communicators = Communicators(Timelines(8))
    parent = world(communicators, [10, 11, 12, 13, 14])
    asked = {10: (0, 5), 11: (1, 0), 12: (0, 5), 13: (0, 1), 14: (-1, 0)}
    answers: Answers = []
    for rank in (13, 10, 14, 12, 11):
        color, key = asked[rank]
        creation, answers = communicators.split(rank, split(rank, parent, color, key))
        assert creation.size == 5
    got = decoded(answers)
    assert got[14].comm == 0
    assert communicators.by_id[got[10].comm].members == (13, 10, 12)
    assert [got[rank].rank for rank in (13, 10, 12)] == [0, 1, 2]
    assert (got[11].rank, got[11].nranks) == (0, 1)
    assert len({got[rank].comm for rank in (10, 11, 12, 13)}) == 2


def test_two_that_claim_one_place() -> None:
    communicators = Communicators(Timelines(8))
    communicators.init(0, init(0, 0, 2))
    with pytest.raises(Mismatch, match="ranks 0 and 1 both joined a communicator of 2 ranks as its rank 0"):
        communicators.init(1, init(1, 0, 2))


@pytest.mark.parametrize(("rank", "place", "other"), [(7, 2, 6), (6, 3, 6), (5, 2, 5)])
def test_the_first_of_many_that_contradicts_is_named(rank: int, place: int, other: int) -> None:
    communicators = Communicators(Timelines(8))
    for asked, its in ((4, 0), (5, 1), (6, 2)):
        communicators.init(asked, init(asked, its, 4))
    with pytest.raises(Mismatch, match=f"ranks {other} and {rank} both joined .* as its rank {place}"):
        communicators.init(rank, init(rank, place, 4))


def test_members_that_all_are_told_are_kept_once() -> None:
    asked = [init(rank, rank, 300)._replace(payload=bytes(128) + pack("<300I", *range(300))) for rank in (0, 1)]
    first, second = (stated_members(ask) for ask in asked)
    assert first is not None
    assert second is not None
    assert first.members == tuple(range(300))
    assert first.members is second.members


def test_two_that_disagree_about_the_size() -> None:
    communicators = Communicators(Timelines(8))
    communicators.init(0, init(0, 0, 2))
    with pytest.raises(Mismatch, match="ranks 0 and 1 disagree about a communicator's size: 2 and 3"):
        communicators.init(1, init(1, 1, 3))


def test_a_rank_that_ends_before_a_split() -> None:
    communicators = Communicators(Timelines(8))
    comm = world(communicators, [0, 1])
    communicators.split(0, split(0, comm, 0, 0))
    with pytest.raises(Deadlock, match="rank 1 has ended, but rank 0 asked for split #0 of communicator of ranks 0-1"):
        communicators.rank_ended(1)
