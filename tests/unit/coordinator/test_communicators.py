"""Who makes up a communicator, and which calls belong together."""

from __future__ import annotations

import pytest

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.ingest.communicators import Answers, Communicators, compact, named
from phantora_async.errors import Deadlock, Mismatch, ProtocolError


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
    """The id of a communicator of these world ranks, in this order."""
    answers: Answers = []
    for place, rank in enumerate(ranks):
        assert answers == []
        _, answers = communicators.init(rank, init(rank, place, len(ranks), unique))
    return decoded(answers)[ranks[0]].comm


def call(comm: int, op: int = NcclKind.ALL_REDUCE, *, seq: int = 0, peer: int = 0, count: int = 4) -> records.NcclOp:
    return records.NcclOp(comm, seq, op, 7, 0, peer, count, 0, 0, 1.0)


def test_members_are_answered_when_the_last_has_asked() -> None:
    communicators = Communicators()
    assert communicators.init(4, init(4, 1, 2))[1] == []
    _, answers = communicators.init(2, init(2, 0, 2))
    got = decoded(answers)
    assert {rank: (a.qid, a.rank, a.nranks) for rank, a in got.items()} == {2: (1002, 0, 2), 4: (1004, 1, 2)}
    assert communicators.by_id[got[2].comm].members == (2, 4)


def test_ids_depend_on_nothing_but_the_members_calls() -> None:
    first, second = Communicators(), Communicators()
    assert world(first, [0, 1, 2]) == world(second, [0, 1, 2])
    assert world(first, [0, 1, 2]) != world(second, [0, 1, 2], b"other")


def test_communicators_of_the_same_ranks_can_be_told_apart() -> None:
    communicators = Communicators()
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
    communicators = Communicators()
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
    communicators = Communicators()
    communicators.init(0, init(0, 0, 2))
    with pytest.raises(Mismatch, match="ranks 0 and 1 both joined a communicator of 2 ranks as its rank 0"):
        communicators.init(1, init(1, 0, 2))


def test_two_that_disagree_about_the_size() -> None:
    communicators = Communicators()
    communicators.init(0, init(0, 0, 2))
    with pytest.raises(Mismatch, match="ranks 0 and 1 disagree about a communicator's size: 2 and 3"):
        communicators.init(1, init(1, 1, 3))


def test_calls_meet_by_their_number_not_by_their_arrival() -> None:
    communicators = Communicators()
    comm = world(communicators, [0, 1])
    first, second = (communicators.join(0, call(comm, seq=seq)) for seq in (0, 1))
    assert communicators.join(1, call(comm, seq=0)) is first
    assert communicators.join(1, call(comm, seq=1)) is second


def test_messages_of_a_pair_meet_in_order_and_by_direction() -> None:
    communicators = Communicators()
    comm = world(communicators, [5, 6])
    there = communicators.join(5, call(comm, NcclKind.SEND, peer=1))
    back = communicators.join(5, call(comm, NcclKind.RECV, peer=1))
    assert there is not back
    assert communicators.join(6, call(comm, NcclKind.SEND, peer=0)) is back
    assert communicators.join(6, call(comm, NcclKind.RECV, peer=0)) is there


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (call(1), "communicator 0x1 is unknown"),
        (call(0, NcclKind.SEND, peer=9), "rank 9 of the communicator"),
        (call(0, seq=3), "its next call is not all_reduce #3"),
        (call(0, 77), "NCCL_OP 77"),
        (call(0)._replace(dtype=99), "dtype 99"),
    ],
)
def test_impossible_calls(op: records.NcclOp, message: str) -> None:
    communicators = Communicators()
    comm = world(communicators, [0, 1])
    with pytest.raises(ProtocolError, match=f"rank 1: .*{message}"):
        communicators.join(1, op if op.comm else op._replace(comm=comm))


def test_a_call_on_a_communicator_of_others() -> None:
    communicators = Communicators()
    comm = world(communicators, [0, 1])
    with pytest.raises(ProtocolError, match=r"rank 7: .*no member of the communicator of ranks 0-1"):
        communicators.join(7, call(comm))


def test_an_ended_rank_is_missed_by_those_who_called_and_those_who_will() -> None:
    communicators = Communicators()
    comm = world(communicators, [0, 1, 2])
    communicators.leave(2)
    with pytest.raises(Deadlock, match=r"rank 2 ended without calling all_reduce #0 .*, but rank 0 called it"):
        communicators.join(0, call(comm))
    with pytest.raises(Deadlock, match=r"ranks 1-2 ended without calling all_reduce #0 .*, but rank 0 called it"):
        communicators.leave(1)


def test_a_rank_that_ends_before_a_split() -> None:
    communicators = Communicators()
    comm = world(communicators, [0, 1])
    communicators.split(0, split(0, comm, 0, 0))
    with pytest.raises(Deadlock, match="rank 1 has ended, but rank 0 asked for split #0 of communicator of ranks 0-1"):
        communicators.leave(1)


def test_numbers_of_ranks_read_well() -> None:
    assert compact([3, 1, 2, 7]) == "1-3,7"
    assert compact(range(0, 64, 8)) == "0-56:8"
    assert compact([0, 8]) == "0,8"
    assert named([5]) == "rank 5"
    assert named(range(4)) == "ranks 0-3"
