"""Mirrored ranks: virtual time gets the facts that ranks with processes would have sent."""

from __future__ import annotations

import random
from collections.abc import Callable
from struct import pack
from typing import Any

import numpy as np
import pytest

import netsim
from emu.contract import records
from emu.contract.records import DeviceKind, MessageKind, NcclKind, ScopeKind
from netsim.collectives import load_params
from phantora_async.coordinator.network_model import NetsimNetworkModel
from phantora_async.errors import NotFoldable
from phantora_async.faults.pace import NEVER, NO_PACES, Paces, slowed
from phantora_async.folding import Folding, mesh_of
from phantora_async.folding.mirror import Mirror
from phantora_async.folding.mirrored_ranks import MirroredRanks
from phantora_async.ingest.communicators import Communicators
from phantora_async.ingest.data_exchange import FOLLOWS
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.virtual_time import Stop, Timeline, Timelines
from profiles import load_cluster
from tests.unit.virtual_time.scripted import Script, new_fact_builder, number

TOPOLOGY = netsim.build(load_cluster("dgx-h200").network, servers=4)
PARAMS = load_params("hopper")
SERVERS = (5, 3)
"""The routes of ranks of one role differ: some replicas cross servers."""
MESH = mesh_of("dp=4,tp=2", 8)
WORLD, DP, TP = "world", "dp", "tp"


def members_of(kind: str, rank: int, world: int = 8) -> tuple[int, ...]:
    if kind == WORLD:
        return tuple(range(world))
    return tuple(range(rank % 2, world, 2)) if kind == DP else (rank // 2 * 2, rank // 2 * 2 + 1)


def init(
    rank: int,
    number: int,
    members: tuple[int, ...],
    *,
    told: bool = True,
    servers: tuple[int, ...] = SERVERS,
    payload_after: bytes = b"",
) -> bytes:
    unique = b"rank %d, id %d" % (members[0], number)
    payload = unique.ljust(128, b"\0") + (pack(f"<{len(members)}I", *members) if told else b"") + payload_after
    gpus = [gpu for count in servers for gpu in range(count)]
    place, device = members.index(rank), gpus[rank]
    return records.CommInit.encode(5, 1000 + number, len(members), place, device, 0, payload=payload)


class Rank:
    """One rank's records in two parts: until its communicators are made, and after that."""

    def __init__(self, rank: int, servers: tuple[int, ...]) -> None:
        self.script = Script(rank, sum(servers))
        for turn, kind in enumerate((WORLD, DP, TP)):
            self.script.add(init(rank, turn, members_of(kind, rank, sum(servers)), servers=servers))
        self.first = decoded(self.script)
        self.script.records.clear()


def decoded(script: Script) -> list[Any]:
    return records.decode_up(b"".join(script.records))[0]


def taken(fact_builder: FactBuilder, rank: int, arrived: list[Any], ranks: MirroredRanks | None = None) -> Any:
    """Returns the facts of the rank, and of those that it plays."""
    if ranks is not None:
        ranks.check(rank, arrived)
    yield rank, fact_builder.take(rank, arrived)
    if ranks is not None:
        for played, its in ranks.records_after(rank, arrived):
            yield played, fact_builder.take(played, its)


class Run:
    """A run of which some ranks have processes. With ``folding`` None all have. ``shared``: ranks share timelines."""

    def __init__(
        self,
        folding: Folding | None,
        servers: tuple[int, ...] = SERVERS,
        *,
        shared: bool = False,
        paces: Paces = NO_PACES,
    ) -> None:
        world = sum(servers)
        self.live = range(world) if folding is None else folding.live
        self.network = NetsimNetworkModel(TOPOLOGY, PARAMS, servers)
        self.timelines = Timelines(world, folding if shared else None, servers, paces.hosts)
        self.timeline = Timeline(world, self.network, 64, timelines=self.timelines, paces=paces)
        self.fact_builder = new_fact_builder(world, self.timelines)
        self.ranks = None
        self.answers = None
        if folding is not None:
            self.ranks = MirroredRanks(folding, self.timelines, servers, self.fact_builder.communicators)
            self.answers = self.ranks.answers
        self.told: dict[int, list[int]] = {}
        self.parts = {rank: Rank(rank, servers) for rank in self.live}
        for rank, part in self.parts.items():
            self.feed(rank, part.first)

    def comm(self, kind: str, rank: int) -> int:
        members = members_of(kind, rank, self.timelines.world_size)
        (found,) = [one.id for one in self.fact_builder.communicators.by_id.values() if one.members == members]
        return found

    def feed(self, rank: int, arrived: list[Any]) -> None:
        for one, facts in taken(self.fact_builder, rank, arrived, self.ranks):
            self.timeline.feed(one, facts)

    def look(self) -> None:
        answers = self.timeline.take_answers()
        for rank, encoded in self.answers.first(answers) if self.answers else answers:
            self.told.setdefault(rank, []).append(number(encoded))

    def play(self, write: Callable[[Script, Callable[[str], int]], None], seed: int) -> dict[str, Any]:
        """Plays the run and returns what is seen of it from outside. `write` adds a rank's records, given its
        communicators.
        """
        chance = random.Random(seed)
        left = {}
        for rank, part in self.parts.items():
            write(part.script, lambda kind, rank=rank: self.comm(kind, rank))
            left[rank] = decoded(part.script.sync().bye())
        while any(left.values()):
            rank = chance.choice([rank for rank, mine in left.items() if mine])
            portion = chance.randint(1, 6)
            self.feed(rank, left[rank][:portion])
            del left[rank][:portion]
            self.timeline.run(chance.choice((1, 20, 1000)))
            self.look()
        while self.timeline.run(1000) is Stop.BUDGET:
            continue
        self.look()
        snapshot = self.timeline.snapshot()
        return {
            "end": snapshot.now_ns,
            "clocks": [rank.clock_ns for rank in snapshot.ranks],
            "shares": [rank.shares for rank in snapshot.ranks],
            "windows": [rank.window for rank in snapshot.ranks],
            "states": [rank.state for rank in snapshot.ranks],
            "collectives": snapshot.collectives,
            "told": self.told.get(0),
            "traffic": [part.tolist() for part in traffic_of(self.network)],
        }


def traffic_of(network: NetsimNetworkModel) -> tuple[Any, Any]:
    traffic = network.traffic()
    return np.array(traffic.links), traffic.nbytes


def program(seed: int) -> Callable[[Script, Callable[[str], int]], None]:
    """Returns the program of the ranks: the same in each replica, different in the two places of the other axis. Rank 0
    does more.
    """

    def write(script: Script, comm: Callable[[str], int]) -> None:
        drawn = random.Random(seed)
        tp = script.rank % 2
        for _ in range(30):
            what, count = (
                drawn.choice((WORLD, DP, TP, "pair", "segment", "event", "clock", "step")),
                drawn.randint(1, 9),
            )
            own = drawn.randint(1, 90_000), drawn.randint(1, 90_000)
            if what in (WORLD, DP, TP):
                script.comm = comm(what)
                kind = drawn.choice((NcclKind.ALL_REDUCE, NcclKind.ALL_GATHER, NcclKind.BROADCAST))
                script.launch(script.op(kind, count * 50_000), stream=1 + count % 3, after=own[tp] // 9)
            elif what == "pair":
                script.comm = comm(drawn.choice((WORLD, TP)))
                peer = script.rank ^ 1 if script.comm == comm(WORLD) else 1 - tp
                ops = [script.op(kind, count * 9_000, peer=peer) for kind in (NcclKind.SEND, NcclKind.RECV)]
                script.launch(*ops, stream=2, after=own[tp] % 50)
            elif what == "segment":
                script.segment(own[tp], stream=1 + count % 3, contended_ns=own[tp] * 5 // 4, after=own[tp] % 300)
            elif what == "event":
                script.wait(script.record(stream=1), stream=2)
            elif what == "clock" and script.rank == 0:
                script.sync(stream=1).clock(after=own[0] % 77)
            elif what == "step":
                script.step(after=3)

    return write


@pytest.mark.parametrize("seed", range(12))
def test_virtual_time_is_the_same_as_with_all_processes(seed: int) -> None:
    write = program(seed)
    whole = Run(None).play(write, seed)
    folding = Folding(MESH, frozenset((0,) if seed % 3 else (0, 5, 7)))
    assert Run(folding).play(write, seed + 100) == whole


@pytest.mark.parametrize("slow_rank", [None, 9])
@pytest.mark.parametrize("seed", range(6))
def test_ranks_that_share_a_timeline_have_what_each_would_have(seed: int, slow_rank: int | None) -> None:
    """Six of eight replicas, on four servers alike, share; or five, if one of them has a slow host."""
    write, servers = program(seed), (4, 4, 4, 4)
    folding = Folding(mesh_of("dp=8,tp=2", 16), frozenset((0, 15)))
    paces = NO_PACES if slow_rank is None else Paces({slow_rank: slowed([(0, NEVER, 700_000)])})
    shared = Run(folding, servers, shared=True, paces=paces)
    assert len(shared.timelines.own) == (6 if slow_rank is None else 8)
    assert shared.play(write, seed + 100) == Run(folding, servers, paces=paces).play(write, seed)
    assert shared.network.replicated.apart == 0


def exchanging(seed: int) -> Callable[[Script, Callable[[str], int]], None]:
    """Returns a program of which each rank exchanges messages with the one two places away, which does the same."""

    def write(script: Script, comm: Callable[[str], int]) -> None:
        drawn = random.Random(seed)
        tp = script.rank % 2
        for _ in range(20):
            what, count = drawn.choice((WORLD, TP, "exchange", "segment", "event")), drawn.randint(1, 9)
            own = drawn.randint(1, 90_000), drawn.randint(1, 90_000)
            if what in (WORLD, TP):
                script.comm = comm(what)
                script.launch(script.op(NcclKind.ALL_REDUCE, count * 50_000), stream=1 + count % 3, after=own[tp] // 9)
            elif what == "exchange":
                script.comm = comm(DP)
                peer = (script.rank ^ 2) // 2
                ops = [script.op(kind, count * 90_000, peer=peer) for kind in (NcclKind.SEND, NcclKind.RECV)]
                script.launch(*ops, stream=2, after=own[tp] % 50)
            elif what == "segment":
                script.segment(own[tp], stream=1 + count % 3, contended_ns=own[tp] * 5 // 4, after=own[tp] % 300)
            else:
                script.wait(script.record(stream=1), stream=2)

    return write


@pytest.mark.parametrize("servers", [(4, 4, 4, 4), (2, 2, 2, 2)], ids=["within servers", "between servers"])
@pytest.mark.parametrize("seed", range(4))
def test_two_ranks_that_share_a_timeline_exchange_messages(seed: int, servers: tuple[int, ...]) -> None:
    """What each sends is what the other one sends: the two messages of a pair move as with a process for each rank."""
    write = exchanging(seed)
    folding = Folding(mesh_of(f"dp*={sum(servers) // 4},cp*=2,tp=2", sum(servers)))
    shared = Run(folding, servers, shared=True)
    assert shared.timelines.own == (0, 1)
    assert shared.play(write, seed) == Run(folding, servers).play(write, seed) == Run(None, servers).play(write, seed)


def test_a_message_to_a_rank_that_shares_the_timeline_has_what_the_rank_sends() -> None:
    run = Run(Folding(mesh_of("dp=2,tp=2", 4)), (2, 2), shared=True)
    script = run.parts[0].script
    script.comm = run.comm(DP, 0)
    numbers = pack("<2i", 5, 6)
    sent = script.op(NcclKind.SEND, 2, dtype=2, peer=1, data=numbers)
    script.launch(sent, script.op(NcclKind.RECV, 2, dtype=2, peer=1, token=7), data=numbers)
    run.feed(0, decoded(script))
    given = [encoded for rank, encoded in run.fact_builder.take_answers() if encoded.endswith(numbers)]
    assert given == [records.Data.encode(7, 7, 0, payload=numbers)]


def test_a_large_message_to_a_rank_that_shares_the_timeline_refers_to_what_the_rank_sends() -> None:
    run = Run(Folding(mesh_of("dp=2,tp=2", 4)), (2, 2), shared=True)
    script = run.parts[0].script
    comm = script.comm = run.comm(DP, 0)
    told = records.NcclSources.encode(0, comm, 0, 17, 18, NcclKind.SEND, 0, 1, 3)
    asked = records.SourcesOf.encode(0, 9, comm, 0, NcclKind.SEND, 1, 0, 0)
    ops = [script.op(kind, 1 << 20, peer=1) for kind in (NcclKind.SEND, NcclKind.RECV)]
    run.fact_builder.take_answers()
    run.feed(0, decoded(script.add(told).add(asked)))
    assert run.fact_builder.take_answers() == []
    script.records.clear()
    run.feed(0, decoded(script.launch(*ops)))
    answers = [encoded for _, encoded in run.fact_builder.take_answers()]
    assert answers == [records.Sources.encode(9, 1, 0, payload=records.SourceTable.encode(17, 18, 3, 0))]


def test_replicas_whose_routes_differ_are_found() -> None:
    """The second replica lies in one server, the third crosses servers."""
    folding = Folding(mesh_of("dp=4,tp=2", 8), frozenset((0, 7)))
    run = Run(folding, shared=True)

    def write(script: Script, comm: Callable[[str], int]) -> None:
        script.comm = comm(TP)
        for _ in range(2):
            script.launch(script.op(NcclKind.ALL_REDUCE, 1 << 20))

    run.play(write, 0)
    assert run.network.replicated.apart == 1
    assert run.network.replicated.most_apart_ns > 1000


@pytest.mark.parametrize("seed", range(4))
def test_parts_of_an_axis_share_timelines_for_themselves(seed: int) -> None:
    """The first replica does more than the other seven."""
    write, servers = program(seed), (4, 4, 4, 4)
    shared = Run(Folding(mesh_of("dp=1+7,tp=2", 16)), servers, shared=True)
    assert shared.timelines.own == (0, 1, 2, 3)
    own, whole = shared.play(write, seed + 100), Run(None, servers).play(write, seed)
    assert (own["end"], own["clocks"], own["told"]) == (whole["end"], whole["clocks"], whole["told"])


def messages(
    script: Script, part: int, place: int, count: int, root: int = 0, members: int = 4, **options: Any
) -> list[bytes]:
    """Returns a member's calls of a gather or scatter. `place`: the member's own."""
    is_root = place == root
    kind = NcclKind.SEND if (part == MessageKind.OF_SCATTER) == is_root else NcclKind.RECV
    peers = [peer for peer in range(members) if peer != root] if is_root else [root]
    return [script.op(kind | part, count, peer=peer, **options) for peer in peers]


def gathering(seed: int, world: int) -> Callable[[Script, Callable[[str], int]], None]:
    """Gathers and scatters among all ranks, or those of the folded axis; their root is the first."""

    def write(script: Script, comm: Callable[[str], int]) -> None:
        drawn = random.Random(seed)
        for turn in range(12):
            kind = drawn.choice((WORLD, DP))
            part = drawn.choice((MessageKind.OF_GATHER, MessageKind.OF_SCATTER))
            members = members_of(kind, script.rank, world)
            script.comm, place = comm(kind), members.index(script.rank)
            script.segment(drawn.randint(1, 90_000), stream=2, after=drawn.randint(1, 300))
            calls = messages(script, part, place, drawn.randint(1, 9) * 50_000, members=len(members))
            script.launch(*calls, stream=2, after=turn)

    return write


@pytest.mark.parametrize("seed", range(8))
def test_gathers_and_scatters_have_one_root(seed: int) -> None:
    write = gathering(seed, 8)
    whole = Run(None).play(write, seed)
    assert Run(Folding(mesh_of("dp=1+3,tp=2", 8), frozenset((0,) if seed % 2 else ()))).play(write, seed + 100) == whole


@pytest.mark.parametrize("seed", range(8))
def test_ranks_that_share_a_timeline_gather_together(seed: int) -> None:
    """Four servers alike, the root's part apart: what the others do takes as long on each."""
    write, servers = gathering(seed, 16), (4, 4, 4, 4)
    folding = Folding(mesh_of("dp=1+7,tp=2", 16))
    shared = Run(folding, servers, shared=True)
    assert shared.timelines.own == (0, 1, 2, 3)
    own, whole = shared.play(write, seed + 100), Run(None, servers).play(write, seed)
    assert own["clocks"][0] == whole["clocks"][0]
    assert own["end"] == whole["end"]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("follows", [False, True])
def test_a_root_is_given_what_representatives_give(follows: bool, shared: bool) -> None:
    run = Run(Folding(MESH, frozenset((0,))), shared=shared)
    given: dict[int, bytes] = {}
    for rank, part in run.parts.items():
        script = part.script
        script.comm, place = run.comm(DP, rank), rank // 2
        data = pack("<q", 10 + rank)
        if rank % 2 == 0 and place == 0:
            calls = [
                script.op(NcclKind.RECV | MessageKind.OF_GATHER, 1, dtype=4, peer=peer, token=70 + peer)
                for peer in (1, 2, 3)
            ]
            script.launch(*calls)
        elif rank % 2 == 0:
            (op,) = messages(script, MessageKind.OF_GATHER, place, 1, dtype=4, data=data)
            late = b""
            if follows:
                (made,) = records.NcclOp.decode_all(op, 0, 1)
                op = records.NcclOp.encode(*made._replace(data_nbytes=FOLLOWS))
                late = records.NcclData.encode(0, script.comm, 0, made.op, 0, 0, payload=data)
            script.launch(op, data=b"" if follows else data)
            if late:
                script.add(late)
        run.feed(rank, decoded(script))
    for rank, encoded in run.fact_builder.take_answers():
        (answer,), _ = records.decode_down(encoded)
        if isinstance(answer, records.Data):
            assert rank == 0
            given[answer.token - 70] = answer.payload
    assert given == dict.fromkeys((1, 2, 3), pack("<q", 12))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("root", [0, 2])
def test_a_root_that_has_the_role_of_others_is_told_apart(root: int, shared: bool) -> None:
    """By the mesh under which it has none: the run begins again with that."""
    run = Run(Folding(MESH), shared=shared)
    script = run.parts[0].script
    script.comm = run.comm(DP, 0)
    script.launch(*messages(script, MessageKind.OF_GATHER, 0, 8, root))
    with pytest.raises(NotFoldable, match=f"rank {2 * root} is the root of a gather or scatter among 4") as caught:
        run.feed(0, decoded(script))
    assert caught.value.finer == ("dp*=1+3,tp=2" if root == 0 else "dp*=2+1+1,tp=2")


@pytest.mark.parametrize("shared", [False, True])
def test_sums_count_mirrored_members_and_gathers_repeat_them(shared: bool) -> None:
    run = Run(Folding(MESH, frozenset((0,))), shared=shared)
    given: dict[int, bytes] = {}

    def write(script: Script, comm: Callable[[str], int]) -> None:
        for kind, value in ((NcclKind.ALL_REDUCE, 5), (NcclKind.ALL_GATHER, script.rank)):
            script.comm = comm(DP)
            data = pack("<q", value)
            script.launch(script.op(kind, 1, dtype=4, token=70 + kind, data=data), data=data)

    for rank, part in run.parts.items():
        write(part.script, lambda kind, rank=rank: run.comm(kind, rank))
        run.feed(rank, decoded(part.script))
    for rank, encoded in run.fact_builder.take_answers():
        (answer,), _ = records.decode_down(encoded)
        if isinstance(answer, records.Data) and rank == 0:
            given[answer.token - 70] = answer.payload
    assert given[NcclKind.ALL_REDUCE] == pack("<q", 20)
    assert given[NcclKind.ALL_GATHER] == pack("<4q", 0, 2, 2, 2)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("follows", [False, True])
def test_ranks_that_are_roots_in_turn_give_what_their_representative_gave(follows: bool, shared: bool) -> None:
    """An all-gather that is made of broadcasts."""
    run = Run(Folding(MESH, frozenset((0,))), shared=shared)
    for rank, part in run.parts.items():
        script, place = part.script, rank // 2
        script.comm = run.comm(DP, rank)
        late = b""
        for root in range(4):
            data = pack("<q", 10 + rank) if root == place else b""
            op = script.op(NcclKind.BROADCAST, 1, dtype=4, peer=root, token=70 + root, data=data)
            if data and follows:
                (made,) = records.NcclOp.decode_all(op, 0, 1)
                op = records.NcclOp.encode(*made._replace(data_nbytes=FOLLOWS))
                late = records.NcclData.encode(0, script.comm, root, NcclKind.BROADCAST, root, 0, payload=data)
                data = b""
            script.launch(op, data=data)
        run.feed(rank, decoded(script.add(late) if late else script))
    given = {}
    for rank, encoded in run.fact_builder.take_answers():
        (answer,), _ = records.decode_down(encoded)
        if isinstance(answer, records.Data) and rank == 0:
            given[answer.token - 70] = answer.payload
    assert given == {0: pack("<q", 10), 1: pack("<q", 12), 2: pack("<q", 12), 3: pack("<q", 12)}


def test_records_wait_for_communicators_of_others() -> None:
    """Rank 2 plays rank 6, whose neighbour 7 has a process of its own, which has not asked yet."""
    folding = Folding(MESH, frozenset((0, 7)))
    fact_builder = new_fact_builder(8)
    ranks = MirroredRanks(folding, Timelines(8), SERVERS, fact_builder.communicators)
    facts: dict[int, list[Any]] = {}

    def feed(rank: int, script: Script) -> None:
        for one, new in taken(fact_builder, rank, decoded(script), ranks):
            facts.setdefault(one, []).extend(new)
        script.records.clear()

    scripts = {rank: Script(rank, 8) for rank in folding.live}
    for rank in (1, 2):
        feed(rank, scripts[rank].add(init(rank, 2, members_of(TP, rank))))
    (comm,) = [one for one in fact_builder.communicators.by_id.values() if one.members == (2, 3)]
    scripts[2].comm = comm.id
    feed(2, scripts[2].all_reduce(4).segment(10))
    assert [fact.kind for fact in facts[4]][-1] == records.SEGMENT
    assert facts[6][-1].kind == records.COMM_INIT
    feed(7, scripts[7].add(init(7, 2, (6, 7))))
    assert [fact.kind for fact in facts[6]][-2:] == [records.NCCL_LAUNCH, records.SEGMENT]


@pytest.mark.parametrize(
    ("members", "told", "text"),
    [((0, 2), True, "2 of the 4 coordinates of the folded axis dp"), ((0, 1), False, "not known who is in")],
)
def test_what_cannot_be_mirrored_ends_the_run(members: tuple[int, ...], told: bool, text: str) -> None:
    fact_builder = new_fact_builder(8)
    ranks = MirroredRanks(Folding(MESH), Timelines(8), SERVERS, fact_builder.communicators)
    script = Script(0, 8).add(init(0, 0, members, told=told))
    with pytest.raises(NotFoldable, match=text):
        list(taken(fact_builder, 0, decoded(script), ranks))


def pair_init(rank: int, number: int, pair: tuple[int, int], group: tuple[int, ...]) -> bytes:
    """The question for the communicator of two members' messages."""
    return init(rank, number, pair, payload_after=pack(f"<{len(group)}I", *group))


def test_communicators_of_two_neighbours_in_a_ring() -> None:
    """Even members send first and receive then, odd ones the other way, on a communicator for each pair."""
    fact_builder = new_fact_builder(8)
    ranks = MirroredRanks(Folding(mesh_of("dp=4:1+1,tp=2", 8)), Timelines(8), SERVERS, fact_builder.communicators)
    for rank in (0, 1, 2, 3):
        group, place = members_of(DP, rank), rank // 2
        script = Script(rank, 8)
        for turn, other in enumerate(((place + 1) % 4, (place - 1) % 4)):
            low, high = sorted((place, other))
            script.add(pair_init(rank, turn, (group[low], group[high]), group))
        list(taken(fact_builder, rank, decoded(script), ranks))
    made = {one.members: one for one in fact_builder.communicators.by_id.values()}
    along = [(0, 2), (2, 4), (4, 6), (0, 6)]
    assert sorted(made) == sorted([*along, *((low + 1, high + 1) for low, high in along)])
    for rank in (0, 1, 2, 3):
        group, place = members_of(DP, rank), rank // 2
        script = Script(rank, 8)
        calls = [(NcclKind.SEND, (place + 1) % 4), (NcclKind.RECV, (place - 1) % 4)]
        for kind, other in calls if place % 2 == 0 else reversed(calls):
            low, high = sorted((place, other))
            script.comm = made[group[low], group[high]].id
            script.launch(script.op(kind, 8, peer=int(other == high)))
        script.records.pop(0)
        list(taken(fact_builder, rank, decoded(script), ranks))
    assert fact_builder.incomplete_collectives() == {}


@pytest.mark.parametrize("shared", [False, True])
def test_a_communicator_of_two_neighbours_of_one_role_alternates(shared: bool) -> None:
    run = Run(Folding(MESH), shared=shared)
    with pytest.raises(NotFoldable, match="rank 0 sends to or receives from rank 2, along a folded axis") as caught:
        run.feed(0, records.decode_up(pair_init(0, 7, (0, 2), (0, 2, 4, 6)))[0])
    assert (caught.value.finer, caught.value.needs_each) == ("dp*=4:1+1,tp=2", shared)


def test_a_communicator_of_two_neighbours_needs_a_timeline_for_each() -> None:
    """Parts of a ring may differ in role and share timelines among themselves."""
    run = Run(Folding(mesh_of("dp=4:1+1,tp=2", 8)), shared=True)
    asked = {rank: records.decode_up(pair_init(rank, 7, (0, 2), (0, 2, 4, 6)))[0] for rank in (0, 2)}
    run.feed(0, asked[0])
    with pytest.raises(NotFoldable, match="2 of the 4 coordinates of the folded axis dp") as caught:
        run.feed(2, asked[2])
    assert caught.value.needs_each


def test_all_are_asked_about_one_part_of_a_split() -> None:
    """`new_group` of every pair: at each turn those in the pair split off, whoever plays them."""
    fact_builder = new_fact_builder(8)
    folding = Folding(MESH, frozenset((0,)))
    ranks = MirroredRanks(folding, Timelines(8), SERVERS, fact_builder.communicators)

    def feed(rank: int, record: bytes) -> None:
        list(taken(fact_builder, rank, records.decode_up(record)[0], ranks))

    for rank in folding.live:
        feed(rank, Script(rank, 8).records[0])
        feed(rank, init(rank, 0, members_of(WORLD, rank)))
    (world,) = fact_builder.communicators.by_id
    for turn in range(4):
        part = (2 * turn, 2 * turn + 1)
        for rank in folding.live:
            color, told = (40 + turn if rank in part else -1), pack("<4I", 0, 2, *part)
            feed(rank, records.CommSplit.encode(1, 7 + turn, world, color, rank % 2, turn, payload=told))
    made = [comm.members for comm in fact_builder.communicators.by_id.values()]
    assert made[1:] == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_each_rank_names_its_own_part_of_a_split() -> None:
    """`split_group` of all pairs at once."""
    fact_builder = new_fact_builder(8)
    ranks = MirroredRanks(Folding(MESH), Timelines(8), SERVERS, fact_builder.communicators)

    def feed(rank: int, record: bytes) -> None:
        list(taken(fact_builder, rank, records.decode_up(record)[0], ranks))

    for rank in (0, 1):
        feed(rank, Script(rank, 8).records[0])
        feed(rank, init(rank, 0, members_of(WORLD, rank)))
    (world,) = fact_builder.communicators.by_id
    for rank in (0, 1):
        told = pack("<4I", 1, 2, 0, 1)
        feed(rank, records.CommSplit.encode(1, 7, world, 40, rank, 0, payload=told))
    made = [comm.members for comm in fact_builder.communicators.by_id.values()]
    assert sorted(made[1:]) == [(0, 1), (2, 3), (4, 5), (6, 7)]


@pytest.mark.parametrize("peer", [1, 3])
def test_ranks_that_share_a_timeline_do_not_send_to_each_other(peer: int) -> None:
    """Nor to a rank beside them that has one of its own."""
    run = Run(Folding(MESH, frozenset((0,))), shared=True)
    script = run.parts[2].script
    script.comm = run.comm(DP, 2)
    ops = script.op(NcclKind.SEND, 8, peer=peer - 1), script.op(NcclKind.RECV, 8, peer=peer - 1)
    script.launch(*ops)
    with pytest.raises(NotFoldable, match="along a folded axis: --replicas each simulates both"):
        run.feed(2, decoded(script))


def test_peers_of_a_folded_ring() -> None:
    """A ring along the folded axis: every rank sends to the next replica."""
    fact_builder = new_fact_builder(8)
    ranks = MirroredRanks(Folding(MESH), Timelines(8), SERVERS, fact_builder.communicators)
    scripts = {rank: Script(rank, 8).add(init(rank, 1, members_of(DP, rank))) for rank in (0, 1)}
    for rank, script in scripts.items():
        list(taken(fact_builder, rank, decoded(script), ranks))
        script.records.clear()
        script.comm = next(
            one.id for one in fact_builder.communicators.by_id.values() if one.members == members_of(DP, rank)
        )
        ops = script.op(NcclKind.SEND, 8, peer=1), script.op(NcclKind.RECV, 8, peer=3)
        list(taken(fact_builder, rank, decoded(script.launch(*ops)), ranks))
    assert fact_builder.incomplete_collectives() == {}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", [NcclKind.SEND, NcclKind.RECV])
def test_a_ring_whose_ranks_send_and_receive_in_turn_alternates(kind: NcclKind, shared: bool) -> None:
    """Every other rank sends first. The run begins again with a mesh in which these have a role of their own."""
    run = Run(Folding(MESH, frozenset((0,))), shared=shared)
    script = run.parts[2].script
    script.comm = run.comm(DP, 2)
    with pytest.raises(NotFoldable, match="rank 2 sends to or receives from rank 4, along a folded axis") as caught:
        run.feed(2, decoded(script.launch(script.op(kind, 8, peer=2))))
    assert (caught.value.finer, caught.value.needs_each) == ("dp*=4:1+1,tp=2", shared)
    run = Run(Folding(mesh_of("dp=4:1+1,tp=2", 8)))
    script = run.parts[2].script
    script.comm = run.comm(DP, 2)
    run.feed(2, decoded(script.launch(script.op(kind, 8, peer=2))))


def test_mirrored_ranks_use_their_own_gpu() -> None:
    """On servers of two GPUs rank 1 plays rank 2, whose GPU is its server's first."""
    servers = (2, 2)
    mirror = Mirror(Folding(mesh_of("dp=4", 4), frozenset((0, 3))), {1: (2,)}, servers, Communicators(Timelines(4)))
    sent = [
        *(records.StreamCreate.encode(0, 1 + gpu, gpu, 0, 0) for gpu in range(3)),
        records.StreamCreate.encode(0, 4, DeviceKind.APART + 1, 0, 0),
        records.HostWait.encode(0, ScopeKind.DEVICE, 1, 0),
        records.HostWait.encode(0, ScopeKind.STREAM, 1, 0),
    ]
    ((rank, its),) = mirror.records_of(1, records.decode_up(b"".join(sent))[0])
    assert rank == 2
    assert [record.device for record in its[:4]] == [1, 0, 2, DeviceKind.APART]
    assert [record.stream for record in its[4:]] == [0, 1]
