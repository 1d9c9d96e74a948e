"""Random histories: whatever the order of calls, the answers are those of the plain computation, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netsim import Changes, Group, Link, Network, Topology
from netsim.units import ns_from_ticks, rate_from_gbps, ticks_from_ns
from tests.unit.netsim import oracle

EXAMPLES = pytest.mark.parametrize("examples", [100, pytest.param(1500, marks=pytest.mark.thorough)])


def given_many(examples: int) -> settings:
    return settings(max_examples=examples, suppress_health_check=list(HealthCheck))


class _NoRoutes:
    def routes(self, src: int, dst: int) -> list[tuple[int, ...]]:
        return []


@dataclass
class World:
    """A network, a driver that keeps what it was told, and the facts given so far."""

    gbps: list[float]

    def __post_init__(self) -> None:
        links = [Link(f"l{i}", x) for i, x in enumerate(self.gbps)]
        self.net = Network(Topology(links, ["a"], _NoRoutes()))
        self.flows: dict[int, tuple[int, Group, int]] = {}
        self.told: dict[int, int] = {}
        self.steps: dict[int, dict[int, int]] = {i: {0: rate_from_gbps(x)} for i, x in enumerate(self.gbps)}

    def hear(self, changes: Changes) -> int:
        for moved in changes.moved:
            assert self.told.get(moved.flow) == moved.before_ns
            assert moved.before_ns != moved.after_ns
            if moved.after_ns is None:
                del self.told[moved.flow]
            else:
                self.told[moved.flow] = moved.after_ns
        return changes.flow

    def advance(self, for_ns: int) -> None:
        for at_ns, flow in self.net.advance(self.net.now_ns + for_ns):
            assert flow not in self.told
            self.told[flow] = at_ns

    def add(self, key: int, start_ns: int, group: Group) -> None:
        self.flows[key] = (start_ns, group, self.hear(self.net.add(group, start_ns, key)))

    def retime(self, key: int, start_ns: int) -> None:
        _, group, flow = self.flows[key]
        self.hear(self.net.retime(flow, start_ns))
        self.flows[key] = (start_ns, group, flow)

    def retract(self, key: int) -> None:
        _, _, flow = self.flows.pop(key)
        self.hear(self.net.retract(flow))
        self.told.pop(flow, None)

    def set_capacity(self, link: int, at_ns: int, gbps: float) -> None:
        self.hear(self.net.set_capacity(link, at_ns, gbps))
        self.steps[link][ticks_from_ns(at_ns)] = rate_from_gbps(gbps)

    def expected(self) -> dict[int, int | None]:
        facts = {
            key: oracle.Fact(
                key,
                ticks_from_ns(start_ns),
                group.nbytes,
                group.links,
                None if group.cap_gbps is None else rate_from_gbps(group.cap_gbps),
            )
            for key, (start_ns, group, _) in self.flows.items()
        }
        return oracle.completions(facts, {link: sorted(steps.items()) for link, steps in self.steps.items()})

    def verify(self) -> None:
        want = self.expected()
        ids = {key: flow for key, (_, _, flow) in self.flows.items()}
        coming = sorted((at, key) for key, at in want.items() if at is not None and ns_from_ticks(at) > self.net.now_ns)
        known = {ids[k]: ns_from_ticks(at) for k, at in want.items() if at is not None and (at, k) not in set(coming)}
        assert self.told == known
        first = (ns_from_ticks(coming[0][0]), ids[coming[0][1]]) if coming else None
        assert self.net.next_completion() == first
        assert self.net.advance(1 << 40) == [(ns_from_ticks(at), ids[key]) for at, key in coming]
        for key, at in want.items():
            assert self.net.completion_ticks(ids[key]) == at


def groups(links: int) -> st.SearchStrategy[Group]:
    hop = st.tuples(st.integers(0, links - 1), st.sampled_from([1, 1, 1, 2, 3]))
    sizes = st.one_of(st.sampled_from([0, 1, 100, 1000]), st.integers(0, 20_000))
    cap = st.one_of(st.none(), st.none(), st.floats(0.5, 30))
    paths = st.lists(hop, min_size=1, max_size=4, unique_by=lambda h: h[0]).map(tuple)
    return st.builds(Group, sizes, paths, cap)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[float], list[tuple[Any, ...]]]:
    links = draw(st.integers(1, 6))
    gbps = draw(st.lists(st.sampled_from([8, 16, 24, 40, 80, 7.3, 99.9]), min_size=links, max_size=links))
    span = draw(st.sampled_from([1, 50, 2000, 20_000]))
    at = st.integers(0, span)
    step = st.one_of(
        st.tuples(st.just("add"), at, groups(links)),
        st.tuples(st.just("add"), at, groups(links)),
        st.tuples(st.just("advance"), st.integers(0, span // 3 + 1)),
        st.tuples(st.just("retime"), st.integers(0, 99), at),
        st.tuples(st.just("retract"), st.integers(0, 99)),
        st.tuples(
            st.just("capacity"), st.integers(0, links - 1), st.integers(1, span * 2), st.sampled_from([0, 8, 50])
        ),
        st.tuples(st.just("next")),
    )
    return gbps, draw(st.lists(step, min_size=2, max_size=30))


@EXAMPLES
def test_any_history_gives_the_plain_answer(examples: int) -> None:
    given_many(examples)(given(histories())(check_history))()


def check_history(history: tuple[list[float], list[tuple[Any, ...]]]) -> None:
    gbps, steps = history
    world = World(gbps)
    for number, step in enumerate(steps):
        match step:
            case ("add", at, group):
                world.add(number, at, group)
            case ("advance", for_ns):
                world.advance(for_ns)
            case ("retime", which, at) if world.flows:
                world.retime(sorted(world.flows)[which % len(world.flows)], at)
            case ("retract", which) if world.flows:
                world.retract(sorted(world.flows)[which % len(world.flows)])
            case ("capacity", link, at, gbps_):
                world.set_capacity(link, at, gbps_)
            case ("next",):
                world.net.next_completion()
    world.verify()


@EXAMPLES
def test_every_permutation_gives_the_same_bits(examples: int) -> None:
    flows = st.lists(st.tuples(st.integers(0, 3000), groups(4)), min_size=2, max_size=12)
    given_many(examples)(given(flows, st.randoms(use_true_random=False))(check_permutations))()


def check_permutations(flows: list[tuple[int, Group]], random: Any) -> None:
    answers = []
    for _ in range(3):
        order = list(range(len(flows)))
        random.shuffle(order)
        world = World([8, 24, 40, 7.3])
        for key in order:
            world.add(key, *flows[key])
            if random.random() < 0.5:
                world.advance(random.randint(0, 500))
        world.net.advance(1 << 40)
        answers.append([world.net.completion_ticks(world.flows[key][2]) for key in range(len(flows))])
    assert answers[0] == answers[1] == answers[2]
