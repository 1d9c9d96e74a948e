"""Broadcasts that begin together are one flow, and end when flows of their own would."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count
from typing import ClassVar

import pytest

import netsim
from emu.contract.records import NcclKind
from netsim.collectives import load_params
from phantora_async.coordinator.joined_flows import as_one
from phantora_async.coordinator.network_model import NetsimNetworkModel
from phantora_async.virtual_time import Collective
from phantora_async.virtual_time.facts import Comm
from phantora_async.virtual_time.network import Revised
from profiles import load_cluster

SERVERS = 4
RANKS = tuple(range(8 * SERVERS))
TOPOLOGY = netsim.build(load_cluster("dgx-h100").network, servers=SERVERS)
PARAMS = load_params("hopper")
F32 = 7


class Counting(netsim.Network):
    """netsim's network, which knows how many flows it was given that are not committed."""

    made: ClassVar[list[Counting]] = []

    def __init__(self, topology: netsim.Topology) -> None:
        super().__init__(topology)
        self.made.append(self)


@pytest.fixture(autouse=True)
def _counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netsim, "Network", Counting)


class World:
    """A network that is told of collectives, and what it has said of their ends."""

    def __init__(self) -> None:
        self.net = NetsimNetworkModel(TOPOLOGY, PARAMS, (8,) * SERVERS)
        self.network = Counting.made.pop()
        self.begun: dict[Collective, int] = {}
        self.ends: dict[Collective, int] = {}
        self.seq = count()
        self.most_flows = 0

    def made(self, op: int, elements: int, root: int, ranks: Sequence[int] = RANKS) -> Collective:
        comm = Comm(len(ranks), tuple(ranks), tuple(r % 8 for r in ranks), {r: i for i, r in enumerate(ranks)}, "test")
        return Collective(comm, next(self.seq), op, F32, 0, elements, root, tuple(ranks))

    def begin(self, collective: Collective, at_ns: int) -> None:
        self.begun[collective] = at_ns
        self._hear(self.net.begin(collective, at_ns))

    def retract(self, collective: Collective) -> None:
        del self.begun[collective]
        self.ends.pop(collective, None)
        self._hear(self.net.retract(collective))

    def _hear(self, revised: Sequence[Revised]) -> None:
        for one in revised:
            assert self.ends.pop(one.collective) == one.before_ns

    def complete(self) -> int | None:
        at_ns = self.net.next_ns()
        self.most_flows = max(self.most_flows, len(self.network.flows))
        if at_ns is not None:
            for done in self.net.complete(at_ns):
                assert done not in self.ends
                self.ends[done] = at_ns
        return at_ns

    def run(self) -> dict[Collective, int]:
        while self.complete() is not None:
            continue
        return self.ends

    def each_alone(self) -> dict[Collective, int]:
        """The ends of all collectives if each has flows of its own."""
        network, ends = netsim.Network(TOPOLOGY), {}
        for collective, at_ns in self.begun.items():
            plan = self.net.plan(collective)
            for number, group in enumerate(plan.groups):
                network.add(group, at_ns + plan.latency_ns, (collective, number))
        keys = {flow: network.key(flow)[0] for flow in network.flows}
        for at_ns, flow in network.advance(1 << 40):
            ends[keys[flow]] = at_ns
        return ends


def from_all(world: World, op: int, elements: int, at_ns: int) -> list[Collective]:
    group = [world.made(op, elements, root) for root in RANKS]
    for one in group:
        world.begin(one, at_ns)
    return group


@pytest.mark.parametrize("op", [NcclKind.BROADCAST, NcclKind.REDUCE])
@pytest.mark.parametrize("elements", [2, 3_000_000])
def test_broadcasts_of_all_ranks_are_one_flow(op: NcclKind, elements: int) -> None:
    world = World()
    from_all(world, op, elements, 100)
    ends = world.run()
    assert len(ends) == len(RANKS)
    assert ends == world.each_alone()
    assert world.most_flows == 1


def test_what_begins_meanwhile_sets_them_apart() -> None:
    world = World()
    from_all(world, NcclKind.BROADCAST, 3_000_000, 100)
    end_ns = world.run()[next(iter(world.begun))]
    world.begin(world.made(NcclKind.ALL_GATHER, 1_000_000, 0, RANKS[:16]), end_ns // 2)  # known late
    assert world.run() == world.each_alone()
    assert min(world.ends.values()) > end_ns
    assert world.most_flows == len(RANKS) + 1


def test_others_after_their_end_leave_them_together() -> None:
    world = World()
    from_all(world, NcclKind.BROADCAST, 3_000_000, 100)
    end_ns = world.run()[next(iter(world.begun))]
    from_all(world, NcclKind.BROADCAST, 2, end_ns)
    assert world.run() == world.each_alone()
    assert world.most_flows == 2


class _NoRoutes:
    def routes(self, src: int, dst: int) -> list[tuple[int, ...]]:
        return []


def opened_rings(*gbps: float, cap_gbps: float | None = None) -> tuple[list[netsim.Group], netsim.Topology]:
    """A group for each link: it has all links but this one."""
    links = [netsim.Link(f"l{number}", rate) for number, rate in enumerate(gbps)]
    every = tuple((number, 1) for number in range(len(links)))
    groups = [netsim.Group(1000, netsim.LinksLess(every, ((number, 1),)), cap_gbps) for number in range(len(links))]
    return groups, netsim.Topology(links, ["a"], _NoRoutes())


def test_the_joined_flow_has_the_links_of_all() -> None:
    groups, topology = opened_rings(8, 8, 8, 8)
    assert as_one(groups, topology) == netsim.Group(1000, ((0, 3), (1, 3), (2, 3), (3, 3)))


def test_one_slow_link_sets_apart_the_one_that_does_not_cross_it() -> None:
    groups, topology = opened_rings(8, 8, 8, 4)
    assert as_one(groups, topology) is None
    groups, topology = opened_rings(8, 8, 4, 4)
    assert as_one(groups, topology) is not None


def test_what_limits_each_of_them_alone_limits_all() -> None:
    groups, topology = opened_rings(8, 8, 8, 4, cap_gbps=1.0)
    assert as_one(groups, topology) == netsim.Group(1000, ((0, 3), (1, 3), (2, 3), (3, 3)), 1.0)
    groups, topology = opened_rings(8, 8, 8, 4, cap_gbps=2.0)
    assert as_one(groups, topology) is None


def _any_time(world: World, chance: random.Random, committed_ns: int) -> int:
    ends = list(world.ends.values()) or [0]
    return max(committed_ns, chance.choice([chance.choice(ends), chance.randint(0, max(ends) + 1000)]))


@pytest.mark.parametrize("seed", range(150))
def test_any_order_of_calls_gives_the_ends_of_flows_apart(seed: int) -> None:
    chance, world, committed_ns = random.Random(seed), World(), 0
    for _ in range(chance.randint(2, 12)):
        at_ns = _any_time(world, chance, committed_ns)
        match chance.choice(("group", "group", "one", "retract", "complete", "complete", "commit")):
            case "group":
                op = chance.choice((NcclKind.BROADCAST, NcclKind.REDUCE))
                from_all(world, op, chance.choice((1, 5000, 300_000)), at_ns)
            case "one":
                ranks = chance.choice((RANKS, RANKS[:16], RANKS[8:10]))
                op = chance.choice((NcclKind.ALL_REDUCE, NcclKind.ALL_GATHER, NcclKind.BROADCAST))
                world.begin(world.made(op, chance.choice((1, 100_000)), 0, ranks), at_ns)
            case "retract":
                movable = [one for one, begun_ns in world.begun.items() if begun_ns >= committed_ns]
                for one in chance.sample(movable, min(len(movable), chance.choice((1, 3)))):
                    world.retract(one)
            case "complete":
                world.complete()
            case "commit" if world.ends:
                committed_ns = max(committed_ns, min(max(world.ends.values()), at_ns))
                world.net.commit(committed_ns)
    assert world.run() == world.each_alone()
