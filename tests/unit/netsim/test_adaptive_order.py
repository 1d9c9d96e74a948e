"""Adaptive routing: the answers do not depend on the order in which flows and failures are told."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netsim import AdaptiveNetwork, Changes, Group
from netsim.topology import ecmp
from netsim.units import ns_from_ticks, rate_from_gbps, ticks_from_ns
from tests.unit.netsim import oracle
from tests.unit.netsim.adaptive_networks import CLUSTER

UPLINKS = [i for i, link in enumerate(CLUSTER.links) if link.name.startswith("leaf")]
TIMES = st.one_of(st.sampled_from([0, 100, 1000]), st.integers(0, 6000))
SENDS = st.lists(
    st.tuples(st.just("send"), st.integers(0, 5), st.integers(0, 5), TIMES, st.integers(0, 20_000)),
    min_size=2,
    max_size=8,
)
GROUPS = st.lists(
    st.tuples(st.just("group"), st.sampled_from(UPLINKS), st.integers(1, 3), TIMES, st.integers(0, 9000)),
    max_size=2,
)
FAULTS = st.lists(
    st.tuples(st.sampled_from(["down", "down", "up", "late"]), st.sampled_from(UPLINKS), st.integers(1, 9000)),
    max_size=4,
    unique_by=lambda fault: (fault[1], fault[2]),
)


class Player:
    """Tells a network facts and keeps what a driver would believe."""

    def __init__(self) -> None:
        self.net = AdaptiveNetwork(CLUSTER)
        self.told: dict[int, int] = {}
        self.flows: dict[int, int] = {}

    def tell(self, key: int, step: Any) -> None:
        net = self.net
        match step:
            case ("send", src, dst, start_ns, nbytes):
                changes = net.send(src, dst, nbytes, start_ns, key)
            case ("group", link, weight, start_ns, nbytes):
                changes = net.add(Group(nbytes, ((link, weight),)), start_ns, key)
            case (("down" | "up") as kind, link, at_ns):
                changes = net.set_capacity(link, at_ns, 0 if kind == "down" else 40)
            case (_, link, at_ns):
                changes = net.set_latency(link, at_ns, 700)
        self.hear(changes)
        if step[0] in ("send", "group"):
            self.flows[key] = changes.flow

    def hear(self, changes: Changes) -> None:
        for moved in changes.moved:
            assert self.told.get(moved.flow) == moved.before_ns
            if moved.after_ns is None:
                del self.told[moved.flow]
            else:
                self.told[moved.flow] = moved.after_ns

    def advance(self, to_ns: int, look: bool) -> None:
        coming = self.net.next_completion() if look else None
        done = self.net.advance(to_ns)
        if look:
            assert (done[:1] == [coming]) if coming and coming[0] <= to_ns else not done
        self.told |= {flow: at_ns for at_ns, flow in done}

    def answer(self) -> dict[int, Any]:
        self.advance(1 << 40, look=True)
        ends = {key: self.net.completion_ticks(flow) for key, flow in self.flows.items()}
        for key, at in ends.items():
            assert self.told.get(self.flows[key]) == (None if at is None else ns_from_ticks(at))
        return {key: (ends[key], self.net.choices(flow), self.net.segments(flow)) for key, flow in self.flows.items()}


@given(SENDS, GROUPS, FAULTS, st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_order_gives_the_same_bits(sends: Any, groups: Any, faults: Any, random: Any) -> None:
    steps = list(enumerate(sends + groups + faults))
    answers = []
    for turn in range(3):
        player = Player()
        if turn:
            random.shuffle(steps)
        detours: list[int] = []
        for key, step in steps:
            detour = turn == 2 and step[0] in ("send", "group") and random.random() < 0.5
            if detour and random.random() < 0.5:
                # A flow that is told at a wrong time first, or that is taken back.
                player.tell(key, (*step[:3], random.randrange(6000), step[4]))
                detours.append(key)
            elif detour:
                player.tell(key, (*step[:3], random.randrange(6000), step[4] + 99))
                _retract(player, key)
                player.tell(key, step)
            else:
                player.tell(key, step)
            if turn:
                player.advance(player.net.now_ns + random.choice([0, 0, 500, 3000]), look=random.random() < 0.5)
        for key in detours:
            start_ns = dict(steps)[key][3]
            player.hear(player.net.retime(player.flows[key], start_ns))
        answers.append(player.answer())
    assert _bits(answers[0]) == _bits(answers[1]) == _bits(answers[2])
    facts = {key: step for key, step in sorted(steps) if step[0] in ("send", "group")}
    ends, chosen = _plainly(facts, faults)
    assert {key: at for key, (at, _, _) in answers[0].items()} == ends
    for key, (at, choices, _) in answers[0].items():
        expected = [x for x in chosen[key] if at is None or x[0] == chosen[key][0][0] or x[0] < ns_from_ticks(at)]
        assert [(c.at_ns, c.links) for c in choices] == (expected if facts[key][0] == "send" else [])


def _retract(player: Player, key: int) -> None:
    flow = player.flows.pop(key)
    player.hear(player.net.retract(flow))
    player.told.pop(flow, None)


def _bits(answer: dict[int, Any]) -> dict[int, Any]:
    """Completions and choices; segments without the pieces into which a redo may have cut equal rates."""
    return {
        key: (end, choices, _joined(segments) if end is not None else None)
        for key, (end, choices, segments) in sorted(answer.items())
    }


def _joined(segments: Any) -> list[list[Any]]:
    joined: list[list[Any]] = []
    for s in segments:
        if s.from_ticks == s.to_ticks:
            continue
        if joined and joined[-1][2:] == [s.rate, s.links]:
            joined[-1][1] = s.to_ticks
        else:
            joined.append([s.from_ticks, s.to_ticks, s.rate, s.links])
    return joined


def _plainly(facts: Any, faults: Any) -> tuple[dict[int, Any], dict[int, Any]]:
    """The definition, read out: one choice after the other, each from the whole timeline of those before it."""
    gbps = {i: {0: link.gbps} for i, link in enumerate(CLUSTER.links)}
    latency = {i: {0: link.latency_ns} for i, link in enumerate(CLUSTER.links)}
    for kind, link, at_ns in faults:
        if kind == "late":
            latency[link][at_ns] = 700
        else:
            gbps[link][at_ns] = 0 if kind == "down" else 40
    capacities = {
        link: [(ticks_from_ns(at), rate_from_gbps(value)) for at, value in sorted(steps.items())]
        for link, steps in gbps.items()
    }

    def now(steps: dict[int, Any], at_ns: int) -> Any:
        return steps[max(at for at in steps if at <= at_ns)]

    turns = {at for steps in gbps.values() for at in steps}
    agenda = sorted(
        (at, step[3], key)
        for key, step in facts.items()
        for at in ({step[3]} | {t for t in turns if t > step[3]} if step[0] == "send" else {step[3]})
    )
    made: dict[int, oracle.Fact] = {}
    paths: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    for at_ns, start_ns, key in agenda:
        kind, a, b, _, nbytes = facts[key]
        if kind == "group":
            made[key] = oracle.Fact(key, ticks_from_ns(start_ns), nbytes, ((a, b),))
            paths[key] = [(start_ns, (a,))]
            continue
        up = [r for r in CLUSTER.routes(a, b) if all(now(gbps[link], at_ns) > 0 for link in r)]
        if key in paths and (paths[key][-1][1] in up or not up):
            continue
        path = CLUSTER.route(a, b)
        if up:
            ends = oracle.completions(made, capacities)
            there = [k for k in made if k != key and (ends[k] is None or ends[k] > ticks_from_ns(at_ns))]  # type: ignore[operator]
            loads = []
            for route in up:
                own = [link for link in route if not all(link in other for other in up)]
                loads.append(
                    max(
                        (
                            (
                                sum(
                                    facts[k][2] if facts[k][0] == "group" else 1
                                    for k in there
                                    if link in paths[k][-1][1]
                                )
                                + 1
                            )
                            / now(gbps[link], at_ns)
                            for link in own
                        ),
                        default=0,
                    )
                )
            tied = [route for route, load in zip(up, loads, strict=True) if load == min(loads)]
            path = tied[ecmp(a, b, len(tied))]
        hops = tuple((link, 1) for link in path)
        if key in made:
            made[key].ways += ((ticks_from_ns(at_ns), hops),)
        else:
            first_ns = at_ns + sum(now(latency[link], at_ns) for link in path)
            made[key] = oracle.Fact(key, ticks_from_ns(first_ns), nbytes, hops)
        paths.setdefault(key, []).append((at_ns, path))
    chosen = {
        key: [(at, tuple(CLUSTER.links[link].name for link in path)) for at, path in ways]
        for key, ways in paths.items()
    }
    return oracle.completions(made, capacities), chosen


def test_commit_keeps_what_later_choices_need() -> None:
    plain, committing = AdaptiveNetwork(CLUSTER), AdaptiveNetwork(CLUSTER)
    done: list[list[Any]] = [[], []]
    for i in range(60):
        for net, ends in zip((plain, committing), done, strict=True):
            net.send(i % 6, (i * 5 + 1) % 6, 3000 + 100 * i, 150 * i + i % 3, i)
            ends += [(at_ns, net.key(flow)) for at_ns, flow in net.advance(max(net.now_ns, 150 * i - 300))]
        committing.commit(committing.now_ns)
    for net, ends in zip((plain, committing), done, strict=True):
        ends += [(at_ns, net.key(flow)) for at_ns, flow in net.advance(1 << 30)]
    assert done[0] == done[1]
    assert len(done[0]) == 60
    committing.commit(committing.now_ns)
    assert not committing.flows
    assert not committing._pending
    assert not any(committing._completed_on.values())
