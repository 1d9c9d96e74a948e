"""Which calls of different ranks are the same collective."""

from __future__ import annotations

import pytest

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.errors import Deadlock, Mismatch, ProtocolError
from phantora_async.ingest.collective_matching import CollectiveMatching
from phantora_async.ingest.communicators import Communicators
from phantora_async.virtual_time import Timelines

from .test_communicators import world


def matching_of(ranks: list[int]) -> tuple[CollectiveMatching, int]:
    """Makes a matching with one communicator of these ranks, whose id is returned too."""
    timelines = Timelines(8)
    communicators = Communicators(timelines)
    return CollectiveMatching(communicators, timelines), world(communicators, ranks)


def call(comm: int, op: int = NcclKind.ALL_REDUCE, *, seq: int = 0, peer: int = 0, count: int = 4) -> records.NcclOp:
    return records.NcclOp(comm, seq, op, 7, 0, peer, count, 0, 0, 1.0)


def test_calls_meet_by_their_number_not_by_their_arrival() -> None:
    matching, comm = matching_of([0, 1])
    first, second = (matching.join(0, call(comm, seq=seq)) for seq in (0, 1))
    assert matching.join(1, call(comm, seq=0)) is first
    assert matching.join(1, call(comm, seq=1)) is second


def test_messages_of_a_pair_meet_in_order_and_by_direction() -> None:
    matching, comm = matching_of([5, 6])
    there = matching.join(5, call(comm, NcclKind.SEND, peer=1))
    back = matching.join(5, call(comm, NcclKind.RECV, peer=1))
    assert there is not back
    assert matching.join(6, call(comm, NcclKind.SEND, peer=0)) is back
    assert matching.join(6, call(comm, NcclKind.RECV, peer=0)) is there


def test_members_that_call_after_a_mismatch_show_which_call_is_the_odd_one() -> None:
    """Rank 3, which is wrong, comes first, so that rank 0 is the first to disagree."""
    matching, comm = matching_of([0, 1, 2, 3])
    matching.join(3, call(comm, count=8), 33)
    for rank in (0, 1):
        with pytest.raises(Mismatch) as raised:
            matching.join(rank, call(comm, count=4), 30 + rank)
    assert [(side.ranks, side.sites) for side in raised.value.sides] == [((3,), (33,)), ((0, 1), (30, 31))]
    matching.join(2, call(comm, count=8), 32)
    eight, four = matching.mismatch()
    assert (eight.ranks, eight.call.split()[3]) == ((3, 2), "8")
    assert (four.ranks, four.call.split()[3]) == ((0, 1), "4")


def test_messages_of_the_second_communicator_of_the_same_ranks_say_so() -> None:
    timelines = Timelines(8)
    communicators = Communicators(timelines)
    matching = CollectiveMatching(communicators, timelines)
    first, second = (world(communicators, [5, 6], unique) for unique in (b"a", b"b"))
    sent = [matching.join(5, call(comm, NcclKind.SEND, peer=1)).describe() for comm in (first, second)]
    one = "send/recv #0 of 4 f32 from rank 5 to rank 6"
    assert sent == [one, f"{one} on communicator of ranks 5-6 (their number 2)"]


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
    matching, comm = matching_of([0, 1])
    with pytest.raises(ProtocolError, match=f"rank 1: .*{message}"):
        matching.join(1, op if op.comm else op._replace(comm=comm))


def test_a_call_on_a_communicator_of_others() -> None:
    matching, comm = matching_of([0, 1])
    with pytest.raises(ProtocolError, match=r"rank 7: .*not a member of the communicator of ranks 0-1"):
        matching.join(7, call(comm))


def test_an_ended_rank_is_missed_by_those_who_called_and_those_who_will() -> None:
    matching, comm = matching_of([0, 1, 2])
    matching.rank_ended(2)
    with pytest.raises(Deadlock, match=r"rank 2 ended without calling all_reduce #0 .*, but rank 0 called it"):
        matching.join(0, call(comm))
    with pytest.raises(Deadlock, match=r"ranks 1-2 ended without calling all_reduce #0 .*, but rank 0 called it"):
        matching.rank_ended(1)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"count": 4}, {"count": 8}, ("all_reduce #0 of 4 f32", "all_reduce #0 of 8 f32")),
        ({"dtype": 7}, {"dtype": 2}, ("of 4 f32", "of 4 i32")),
        ({"redop": 0}, {"redop": 2}, ("f32 (sum)", "f32 (max)")),
        ({"op": NcclKind.BROADCAST, "peer": 0}, {"op": NcclKind.BROADCAST, "peer": 1}, ("root rank 0", "root rank 1")),
        ({}, {"op": NcclKind.BROADCAST}, ("all_reduce #0", "broadcast #0")),
    ],
)
def test_calls_that_differ_are_named(one: dict[str, int], other: dict[str, int], expected: tuple[str, str]) -> None:
    matching, comm = matching_of([0, 1])
    matching.join(0, call(comm)._replace(**one), site=7)
    with pytest.raises(Mismatch, match="called different collectives as their number 0") as raised:
        matching.join(1, call(comm)._replace(**other), site=9)
    mine, theirs = raised.value.sides
    assert (mine.ranks, mine.sites, theirs.ranks, theirs.sites) == ((0,), (7,), (1,), (9,))
    assert expected[0] in mine.call
    assert expected[1] in theirs.call


def test_a_rank_waits_in_the_oldest_call_that_others_have_not_made() -> None:
    matching, comm = matching_of([0, 1])
    first, _ = (matching.join(0, call(comm, seq=seq)) for seq in (0, 1))
    assert matching.incomplete() == {0: first}
    matching.join(1, call(comm, seq=0))
    assert matching.incomplete()[0].seq == 1


def test_a_rank_that_has_aborted_its_communicator_waits_for_nobody() -> None:
    matching, comm = matching_of([0, 1, 2])
    matching.join(1, call(comm))
    assert list(matching.incomplete()) == [1]
    matching.aborted(1, comm)
    assert matching.incomplete() == {}
    matching.rank_ended(0)
    with pytest.raises(Deadlock, match=r"rank 0 ended without calling all_reduce #0 .*, but rank 2 called it"):
        matching.join(2, call(comm))
