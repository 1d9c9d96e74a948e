"""Random programs of several ranks, and how they are played: in which portions, and how far ahead."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from hypothesis import strategies as st

import netsim
from emu.contract import records
from emu.contract.records import EndKind, NcclKind
from netsim.collectives import load_params
from phantora_async.coordinator.network_model import NetsimNetworkModel
from phantora_async.faults import Fault, parse
from phantora_async.faults.effects import paces_of
from phantora_async.faults.pace import NO_PACES, Paces
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.virtual_time import Collective, Listener, NetworkModel, Revised, Stop, Timeline
from profiles import load_cluster

from .scripted import Arrivals, FixedNetwork, Script, new_fact_builder, number

TOPOLOGY = netsim.build(load_cluster("dgx-h200").network, servers=2)
PARAMS = load_params("hopper")
MOST = 5
GROUPS = ((0, 1, 2, 3, 4), (0, 1), (1, 2, 3), (0, 3, 4), (2, 4))
"""Communicators by world rank; they overlap. Members that a smaller world lacks are left out."""

Program = list[tuple[int, tuple[Any, ...]]]
_after = st.lists(st.integers(0, 400), min_size=MOST, max_size=MOST)
_stream = st.integers(1, 3)
_action = st.one_of(
    st.tuples(st.just("segment"), _stream, st.integers(0, 900), st.integers(0, 300), st.integers(0, 500)),
    st.tuples(st.just("event"), _stream, _stream),
    st.tuples(st.just("wait for event"), _stream, st.integers(0, 60)),
    st.tuples(st.just("sync"), st.integers(0, 3)),
    st.tuples(st.just("clock"), st.integers(0, 50)),
    st.tuples(st.just("elapsed"), _stream),
    st.tuples(st.just("collective"), st.integers(0, 4), st.integers(0, 2), st.integers(0, 300), _stream, _after),
    st.tuples(st.just("send"), st.integers(0, 4), _stream, st.integers(1, 300)),
    st.tuples(st.just("exchange"), st.integers(0, 4), _stream, st.integers(1, 300)),
    st.tuples(st.just("connect"), st.integers(0, 4), st.integers(1, 3), st.booleans(), st.booleans(), _after),
    st.tuples(st.just("query"), _stream),
    st.tuples(st.just("poll"), _stream, st.sampled_from((3, 70)), st.sampled_from((0, 40, 2001))),
    st.tuples(
        st.just("loop"), _stream, st.integers(0, 9000), st.integers(1, 9), st.integers(0, 1500), st.integers(0, 2)
    ),
    st.tuples(st.just("step")),
    st.tuples(st.just("batch"), st.integers(0, 3), st.integers(0, 90)),
    st.tuples(st.just("destroy"), st.integers(0, 500)),
    st.tuples(st.just("abort"), st.integers(0, 4), st.integers(0, 300)),
)
programs = st.lists(st.tuples(st.integers(0, MOST - 1), _action), max_size=30)
_KINDS = (NcclKind.ALL_REDUCE, NcclKind.ALL_GATHER, NcclKind.BROADCAST)


_at = st.integers(0, 3000)
_share = st.sampled_from(("0.1", "0.5", "0.777777", "1"))
_slow = st.builds(" at {}x from {}ns for {}ns".format, _share, _at, st.integers(1, 5000))
fault_texts = st.lists(
    st.one_of(
        st.builds("gpu {}{}".format, st.integers(0, MOST - 1), _slow),
        st.builds("gpu {} at {}x".format, st.integers(0, MOST - 1), _share),
        st.builds("gpu {} ecc retry {}ns at {}ns".format, st.integers(0, MOST - 1), st.integers(1, 900), _at),
        st.builds("host {}{}".format, st.integers(0, 1), _slow),
        st.builds("host {} jitter 20% every 1us seed {}".format, st.integers(0, 1), st.integers(0, 9)),
    ),
    max_size=4,
)
"""Texts of faults: slow GPUs and hosts."""


def paces_for(size: int, texts: Sequence[str]) -> Paces:
    """Gives each rank a server of its own; faults of what a smaller world lacks are left out."""
    faults: list[Fault] = [parse(text) for text in texts]
    there = [one for one in faults if max(getattr(one, "rank", 0), getattr(one, "server", 0)) < size]
    return paces_of(there, (1,) * size)


def _groups(size: int) -> list[tuple[int, ...]]:
    return [tuple(rank for rank in group if rank < size) for group in GROUPS]


def _init(group: int, ranks: tuple[int, ...], rank: int, after: int, life: int) -> bytes:
    unique = b"group %d of life %d" % (group, life)
    return records.CommInit.encode(
        after, 100 + group, len(ranks), ranks.index(rank), rank, 0, payload=unique.ljust(128, b"\0")
    )


@cache
def _comm_ids(size: int, life: int) -> list[int]:
    """Returns the ids that the communicators will have; 0 for those without members."""
    ids = []
    for group, ranks in enumerate(_groups(size)):
        fact_builder = new_fact_builder(size)
        for rank in ranks:
            fact_builder.take(rank, records.decode_up(Script(rank, size).records[0])[0])
            fact_builder.take(rank, records.decode_up(_init(group, ranks, rank, 0, life))[0])
        ids.append(next(iter(fact_builder.communicators.by_id), 0))
    return ids


def write(size: int, program: Program, scale: int, life: int = 0) -> list[Script]:
    """Returns every rank's records. Counts are multiplied by `scale`; `life`: how often its process started before."""
    world = [Script(rank, size) for rank in range(size)]
    ids, groups = _comm_ids(size, life), _groups(size)
    for group, ranks in enumerate(groups):
        for rank in ranks:
            world[rank].add(_init(group, ranks, rank, 10 * rank * (group % 2), life))
    aborted: set[int] = set()
    met: set[tuple[int, int, int]] = set()
    for rank, action in program:
        _write(world, rank % size, action, ids, groups, aborted, met, scale)
    return [script.sync().clock().bye() for script in world]


def _write(
    world: list[Script],
    rank: int,
    action: tuple[Any, ...],
    ids: list[int],
    groups: list[tuple[int, ...]],
    aborted: set[int],
    met: set[tuple[int, int, int]],
    scale: int,
) -> None:
    script = world[rank]
    match action:
        case ("segment", stream, solo_ns, more_ns, tail_ns):
            script.segment(solo_ns, stream=stream, contended_ns=solo_ns + more_ns, tail_ns=tail_ns, after=solo_ns % 7)
        case ("event", source, target):
            recording = script.record(stream=source, after=1)
            script.wait(recording, stream=target)
            script.add(records.RecordingDrop.encode(0, recording))
        case ("wait for event", stream, after):
            script.sync(recording=script.record(stream=stream), after=after)
        case ("sync", stream):
            script.sync(stream=stream, after=2)
        case ("clock", after):
            script.clock(after=after)
        case ("elapsed", stream):
            script.elapsed(script.record(stream=stream), script.record(stream=1 + stream % 3), after=20)
        case ("collective", group, kind, count, stream, afters) if group not in aborted:
            for member in groups[group]:
                world[member].comm = ids[group]
                op = world[member].op(_KINDS[kind], 1 + count * scale)
                world[member].launch(op, stream=stream, after=afters[member])
        case ("send", other, stream, count) if 0 not in aborted and other % len(world) != rank:
            receiver = world[other % len(world)]
            script.comm = receiver.comm = ids[0]
            script.send(other % len(world), count * scale, stream=stream)
            receiver.receive(rank, count * scale, stream=stream, after=3)
        case ("exchange", other, stream, count) if 0 not in aborted:
            receiver = world[other % len(world)]
            for one, peer in ((script, receiver.rank), (receiver, rank))[: 1 + (receiver is not script)]:
                one.comm = ids[0]
                ops = (one.op(NcclKind.SEND, count, peer=peer), one.op(NcclKind.RECV, count, peer=peer))
                one.launch(*ops, stream=stream, after=count % 50)
        case ("connect", group, step, waits, others_wait, afters) if group not in aborted:
            members = groups[group]
            for place, member in enumerate(members):
                to, come_from = (place + step) % len(members), (place - step) % len(members)
                ends: Counter[int] = Counter()
                if (group, place, to) not in met:
                    ends[to] += EndKind.SENDS
                if (group, come_from, place) not in met:
                    ends[come_from] += EndKind.RECEIVES
                del ends[place]
                peers = b"".join(records.ConnectPeer.encode(*one) for one in ends.items())
                does = waits if member == rank else others_wait
                world[member].add(
                    records.Connect.encode(afters[member], ids[group], len(ends), int(does), payload=peers)
                )
            met.update((group, place, (place + step) % len(members)) for place in range(len(members)))
        case ("query", stream):
            script.query(script.record(stream=stream))
        case ("poll", stream, count, after):
            recording = script.segment(count * 2500, stream=stream).record(stream=stream)
            for _ in range(count):
                script.query(recording, after=after)
        case ("loop", stream, solo_ns, turns, after, about):
            recording = script.segment(solo_ns, stream=stream).record(stream=stream)
            asked = ({"recording": recording}, {"stream": stream}, {})[about]
            for times in (1, 2, 3):
                script.query(**asked, after=after, turns=times * turns)
        case ("step",):
            script.step()
        case ("batch", responses, after):
            script.batch(responses, after=after)
        case ("destroy", solo_ns):
            stream = script.new_stream()
            script.segment(solo_ns, stream=stream).add(records.StreamDestroy.encode(0, stream, 0))
        case ("abort", group, after) if rank in groups[group]:
            script.add(records.CommDestroy.encode(after, ids[group], 1, 0))
            aborted.add(group)


class Watched:
    """A network, and what has begun in it and was not taken back."""

    def __init__(self, network: NetworkModel) -> None:
        self._network = network
        self.begun: dict[Collective, int] = {}
        self.next_ns, self.complete, self.commit = network.next_ns, network.complete, network.commit
        self.shortest_ns = network.shortest_ns

    def begin(self, collective: Collective, at_ns: int, beside_compute: bool) -> Sequence[Revised]:
        assert collective not in self.begun
        self.begun[collective] = at_ns
        return self._network.begin(collective, at_ns, beside_compute)

    def retract(self, collective: Collective) -> Sequence[Revised]:
        del self.begun[collective]
        return self._network.retract(collective)


def fixed() -> NetworkModel:
    return FixedNetwork(lambda collective: 1 + collective.nbytes)


def network() -> NetworkModel:
    return NetsimNetworkModel(TOPOLOGY, PARAMS, (3, MOST - 3))


@dataclass(frozen=True, slots=True)
class Played:
    outcome: dict[str, Any]
    """Everything that the outside can see."""
    timeline: Timeline
    fact_builder: FactBuilder


Ahead = Callable[[random.Random], bool]
"""Tells whether this run of the timeline may go ahead of silent ranks."""
Look = Callable[[Timeline, FactBuilder], object]
"""Called after every run of the timeline."""


def never(chance: random.Random) -> bool:
    return False


def eager(chance: random.Random) -> bool:
    return True


def on_demand(chance: random.Random) -> bool:
    return chance.random() < 0.3


def play(
    scripts: list[Script],
    make_network: Callable[[], NetworkModel],
    seed: int | None,
    ahead: Ahead,
    depth: int,
    look: Look = lambda timeline, fact_builder: None,
    listener: Listener | None = None,
    paces: Paces = NO_PACES,
) -> Played:
    """Feeds everything, in arbitrary portions and order if there is a `seed`, and runs in between and to the end.

    `listener`: to all ranks.
    """
    chance = random.Random(seed)
    network = Watched(make_network())
    timeline = Timeline(len(scripts), network, depth, paces=paces)
    if listener is not None:
        timeline.listen(listener, range(len(scripts)))
    fact_builder = new_fact_builder(len(scripts))
    arrivals = Arrivals(scripts, timeline, fact_builder)
    answers: dict[int, list[int]] = {}

    def collect() -> None:
        for rank, answer in timeline.take_answers():
            answers.setdefault(rank, []).append(number(answer))

    ranks = range(len(scripts))
    patience = [chance.choice((1, 3, 12)) for _ in scripts]
    while arrivals:
        for rank in ranks if seed is None else chance.sample(ranks, len(ranks)):
            if arrivals.waits(rank):
                continue
            arrivals.feed(rank, arrivals.left(rank) if seed is None else chance.randint(0, patience[rank]))
            if seed is not None and chance.random() < 0.7:
                timeline.run(chance.choice((1, 5, 40, 1000)), ahead(chance))
                look(timeline, fact_builder)
                collect()
    while (stop := timeline.run(1000, ahead(chance))) is Stop.BUDGET:
        continue
    collect()
    snapshot = timeline.snapshot()
    return Played(
        {
            "answers": answers,
            "begun": sorted((at_ns, collective.describe()) for collective, at_ns in network.begun.items()),
            "collectives": snapshot.collectives,
            "end": (snapshot.now_ns, stop),
            "clocks": [rank.clock_ns for rank in snapshot.ranks],
            "shares": [rank.shares for rank in snapshot.ranks],
            "instants": snapshot.step_instants,
            "steps": [rank.window for rank in snapshot.ranks],
            "completed": snapshot.completed_collectives,
            "states": [rank.state for rank in snapshot.ranks],
        },
        timeline,
        fact_builder,
    )
