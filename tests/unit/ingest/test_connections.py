"""What hosts wait for when they send to each other for the first time."""

from __future__ import annotations

from emu.contract import records
from emu.contract.folding import Folding
from emu.contract.records import EndKind
from phantora_async.folding import mesh_of
from phantora_async.ingest.connections import Connections
from phantora_async.virtual_time.facts import Comm, ConnectFact
from phantora_async.virtual_time.timelines import Timelines

TO, FROM = EndKind.SENDS, EndKind.RECEIVES


def comm_of(ranks: int, number: int = 1) -> Comm:
    members = tuple(range(ranks))
    return Comm(number, members, members, {rank: rank for rank in members}, f"communicator {number}")


def ask(
    connections: Connections, rank: int, peers: dict[int, int], comm: Comm | None = None, waits: bool = True
) -> list[ConnectFact]:
    record = records.decode_up(records.Connect.encode(7, 1, len(peers), int(waits)))[0][0]
    of_record = [records.ConnectPeer(peer, ends) for peer, ends in peers.items()]
    return connections.facts(rank, comm or comm_of(4), record, of_record)


def made() -> Connections:
    return Connections(Timelines(4))


def labels(facts: list[ConnectFact]) -> list[list[str]]:
    return [[one.label.replace(" on the communicator 1", "") for one in fact.creations] for fact in facts]


def test_peers_are_connected_by_distance_and_then_say_so() -> None:
    """Rank 2 is one behind rank 1, which is one behind rank 0: what these two need is one step."""
    assert labels(ask(made(), 1, {0: TO | FROM, 2: TO})) == [
        ["the connection from rank 0 to rank 1", "the connection from rank 1 to rank 2"],
        ["the connection from rank 1 to rank 0"],
        ["the end of connecting from rank 0 to rank 1", "the end of connecting from rank 1 to rank 2"],
        ["the end of connecting from rank 1 to rank 0"],
    ]


def test_both_ends_join_the_same() -> None:
    connections = made()
    sends, receives = ask(connections, 0, {3: TO}), ask(connections, 3, {0: FROM})
    assert [fact.creations for fact in sends] == [fact.creations for fact in receives]
    assert [creation.joined for fact in sends for creation in fact.creations] == [[0, 3], [0, 3]]


def test_each_communicator_has_connections_of_its_own() -> None:
    connections = made()
    first, second = (
        ask(connections, rank, {1 - rank: way}, comm_of(2, 1 + rank)) for rank, way in ((0, TO), (1, FROM))
    )
    assert not {one for fact in first for one in fact.creations} & {one for fact in second for one in fact.creations}


def test_the_host_time_is_before_the_first_step_and_each_says_how_many_follow() -> None:
    facts = ask(made(), 0, {1: TO, 2: TO}, waits=False)
    assert [(fact.host_ns, fact.waits, fact.further) for fact in facts] == [
        (7, False, 3),
        (0, False, 2),
        (0, False, 1),
        (0, False, 0),
    ]


def test_a_peer_that_shares_the_timeline_is_connected_at_the_same_instant() -> None:
    """The rank waits for nobody; its connections are known with both ends, for ranks that do the same elsewhere."""
    timelines = Timelines(4, Folding(mesh_of("dp*=2,cp*=2", 4)))
    facts = ask(Connections(timelines), 0, {1: TO | FROM}, comm_of(2))
    creations = [creation for fact in facts for creation in fact.creations]
    assert [(one.members, one.size, one.joined) for one in creations] == [
        ((0, 1), 1, [0]),
        ((1, 0), 1, [0]),
        ((0, 1), 1, [0]),
        ((1, 0), 1, [0]),
    ]


def test_a_peer_without_a_timeline_that_does_other_work_is_left_out() -> None:
    timelines = Timelines(4, Folding(mesh_of("dp*=4", 4)))
    facts = ask(Connections(timelines), 0, {1: TO | FROM})
    assert [fact.creations for fact in facts] == [()]
