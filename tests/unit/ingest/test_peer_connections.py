"""What hosts wait for when they send to each other for the first time."""

from __future__ import annotations

from emu.contract.records import NcclKind
from phantora_async.ingest.peer_connections import PeerConnections, Step
from phantora_async.virtual_time.facts import Collective, Comm


def comm_of(ranks: int, number: int = 1) -> Comm:
    members = tuple(range(ranks))
    return Comm(number, members, members, {rank: rank for rank in members}, f"communicator of ranks 0-{ranks - 1}")


def send(comm: Comm, sender: int, receiver: int, callers: tuple[int, ...] | None = None) -> Collective:
    return Collective(comm, 0, NcclKind.SEND, 7, 0, 1, -1, (sender, receiver), callers)


def labels(steps: list[Step]) -> list[list[str]]:
    return [[one.label.replace("send/recv #0 of 1 f32 from ", "") for one in step] for step in steps]


def test_both_directions_of_a_distance_are_one_step_and_the_end_comes_after_all_steps() -> None:
    comm = comm_of(4)
    called = [send(comm, 1, 0), send(comm, 1, 2), send(comm, 0, 1)]
    assert labels(PeerConnections().steps(1, 5, called)) == [
        ["the connection for rank 1 to rank 2", "the connection for rank 0 to rank 1"],
        ["the connection for rank 1 to rank 0"],
        ["the end of connecting for rank 1 to rank 2", "the end of connecting for rank 0 to rank 1"],
        ["the end of connecting for rank 1 to rank 0"],
    ]


def test_both_ends_ask_for_the_same_once() -> None:
    connections, comm = PeerConnections(), comm_of(2)
    mine, its = (connections.steps(rank, 7 + rank, [send(comm, 0, 1)]) for rank in (0, 1))
    assert [step[0] for step in mine] == [step[0] for step in its]
    assert (mine[0][0].joined, mine[0][0].sites) == ([0, 1], [7, 8])
    assert connections.steps(0, 7, [send(comm, 0, 1)]) == []
    assert labels(connections.steps(0, 7, [send(comm, 1, 0)]))[0] == ["the connection for rank 1 to rank 0"]


def test_each_communicator_has_connections_of_its_own() -> None:
    connections = PeerConnections()
    first = connections.steps(0, 1, [send(comm_of(2), 0, 1)])
    assert connections.steps(1, 1, [send(comm_of(2, 2), 0, 1)])[0][0] is not first[0][0]


def test_a_rank_needs_none_to_itself_and_ranks_that_share_a_timeline_make_none() -> None:
    connections, comm = PeerConnections(), comm_of(4)
    assert connections.steps(1, 1, [send(comm, 1, 1), send(comm, 1, 3, callers=(1, 1))]) == []


def test_a_rank_that_begins_again_connects_again() -> None:
    connections, comm = PeerConnections(), comm_of(2)
    for rank in (0, 1):
        assert len(connections.steps(rank, 1, [send(comm, 0, 1)])) == 2
    connections.begin_again(0)
    assert len(connections.steps(0, 1, [send(comm, 0, 1)])) == 2
