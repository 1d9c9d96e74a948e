"""Adaptive routing: choices worked out by hand, and answers that do not depend on who was told what first."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import netsim
from netsim import AdaptiveNetwork, Changes, Group, Network, RoutedNetwork, SpecError, Topology
from netsim.topology import ecmp
from netsim.units import ns_from_ticks, rate_from_gbps, ticks_from_ns
from phantora_async.commands import net as command
from phantora_async.errors import UsageError
from tests.unit.netsim import oracle


def _cluster(latency_ns: int = 100) -> Topology:
    server = {"kind": "host", "gpus": 1, "nics": 1, "nic_gbps": 80, "pcie_gbps": 400}
    fabric = {
        "kind": "leaf-spine",
        "servers_per_leaf": 2,
        "spines": 3,
        "uplink_gbps": 40,
        "latency_ns": latency_ns,
    }
    return netsim.build({"routing": "adaptive", "server": server, "fabric": fabric}, servers=6)


CLUSTER = _cluster()
UPLINKS = [i for i, link in enumerate(CLUSTER.links) if link.name.startswith("leaf")]


def _two_ways(wide_gbps: float = 8.0) -> Topology:
    """Host a to host b over x (8 Gb/s) or y."""
    cables = [("a", "x", 8.0, 0), ("x", "b", 8.0, 0), ("a", "y", wide_gbps, 0), ("y", "b", wide_gbps, 0)]
    topology = netsim.graph.build(["a", "b"], cables)
    topology.routing = "adaptive"
    return topology


def _taken(net: RoutedNetwork, flow: int) -> list[tuple[int, str]]:
    return [(choice.at_ns, choice.links[0]) for choice in net.choices(flow)]


# -- by hand

HASHED = f"a->{'xy'[ecmp(0, 1, 2)]}"
OTHER = f"a->{'yx'[ecmp(0, 1, 2)]}"


def test_the_second_flow_avoids_the_first_and_the_third_finds_a_tie() -> None:
    net = AdaptiveNetwork(_two_ways())
    flows = [net.send(0, 1, 1000, at_ns, key).flow for key, at_ns in (("a", 0), ("b", 10), ("c", 20))]
    # 1000 bytes at 1 byte/ns each on a way of its own; the third shares the hash's choice from 20 on.
    assert net.next_completion() == (1010, flows[1])
    net.advance(20)
    assert [_taken(net, flow) for flow in flows] == [[(0, HASHED)], [(10, OTHER)], [(20, HASHED)]]
    assert net.choices(flows[1])[0].loads == ((1 / 8, 2 / 8) if HASHED == "a->y" else (2 / 8, 1 / 8))
    assert net.advance(5000) == [(1010, flows[1]), (1980, flows[0]), (2000, flows[2])]


def test_a_flow_that_ends_at_the_instant_is_no_load() -> None:
    net = AdaptiveNetwork(_two_ways())
    net.send(0, 1, 1000, 0, "a")
    late, after = net.send(0, 1, 10, 999, "b").flow, net.send(0, 1, 10, 1009, "c").flow
    net.advance(2000)
    assert _taken(net, late) == [(999, OTHER)]
    assert _taken(net, after) == [(1009, HASHED)]


def test_flows_of_one_instant_choose_in_the_order_of_their_keys() -> None:
    for order in (("a", "b"), ("b", "a")):
        net = AdaptiveNetwork(_two_ways())
        flows = {key: net.send(0, 1, 1000, 0, key).flow for key in order}
        assert _taken(net, flows["a"]) == [(0, HASHED)]
        assert _taken(net, flows["b"]) == [(0, OTHER)]


def test_the_wide_way_takes_its_share() -> None:
    net = AdaptiveNetwork(_two_ways(wide_gbps=20.0))
    flows = [net.send(0, 1, 10_000, i, i).flow for i in range(4)]
    net.advance(10)
    # Loads with the flow on x and y: 1/8 1/20, 1/8 2/20, 1/8 3/20, 2/8 3/20.
    assert [_taken(net, flow)[0][1] for flow in flows] == ["a->y", "a->y", "a->x", "a->y"]


def test_a_late_flow_sends_a_later_one_elsewhere_and_the_change_is_told() -> None:
    net = AdaptiveNetwork(_two_ways())
    flow = net.send(0, 1, 1000, 100, "b").flow
    assert net.advance(1500) == [(1100, flow)]
    changes = net.send(0, 1, 500, 0, "a")
    assert changes.moved == (netsim.Moved(changes.flow, None, 500),)
    assert _taken(net, flow) == [(100, OTHER)]
    # A group on the other way makes it a tie again: both flows share from 100 to 900.
    group = net.add(Group(10, ((_link(net, OTHER), 1),)), 95, "g")
    assert _taken(net, flow) == [(100, HASHED)]
    assert {(m.flow, m.before_ns, m.after_ns) for m in group.moved} == {
        (group.flow, None, 105),
        (changes.flow, 500, 900),
        (flow, 1100, 1500),
    }
    net.retract(group.flow)
    assert _taken(net, flow) == [(100, OTHER)]
    net.retract(changes.flow)
    assert _taken(net, flow) == [(100, HASHED)]


def _link(net: Network, name: str) -> int:
    return net.topology.link_id(name)


def test_weights_of_groups_count_and_latency_of_a_group_comes_first() -> None:
    net = AdaptiveNetwork(_two_ways())
    net.add(Group(10_000, ((_link(net, OTHER), 2),), latency_ns=50), 0, "g")
    net.add(Group(10_000, ((_link(net, HASHED), 3),)), 0, "h")
    early, late = net.send(0, 1, 1000, 20, "k").flow, net.send(0, 1, 10, 60, "l").flow
    net.advance(100)
    assert net.choices(early)[0].links[0] == OTHER
    assert sorted(x for x in net.choices(late)[0].loads if x) == [4 / 8, 4 / 8]
    assert net.choices(late)[0].links[0] == HASHED


def test_a_flow_is_moved_to_the_least_loaded_of_what_is_left() -> None:
    topology = _cluster(latency_ns=0)
    net = AdaptiveNetwork(topology)
    # Hosts 0 and 1 under leaf 0, hosts 2 and 3 under leaf 1: three routes, three flows.
    flows = [net.send(a, b, 100_000, i, i).flow for i, (a, b) in enumerate(((0, 2), (1, 3), (0, 3)))]
    net.advance(10)
    ways = [net.choices(flow)[0].route for flow in flows]
    assert sorted(ways) == [0, 1, 2]
    net.add(Group(100_000, ((topology.link_id(f"leaf0:up{ways[1]}"), 1),)), 11, 3)
    net.set_capacity(topology.link_id(f"leaf0:up{ways[0]}"), 12, 0)
    net.advance(12)
    first, then = net.choices(flows[0])
    assert (first.at_ns, first.route, then.at_ns, then.route) == (0, ways[0], 12, ways[2])
    assert [then.loads[way] for way in ways] == [None, 3 / 40, 2 / 40]
    # What happens to the others does not concern them.
    assert [len(net.choices(flow)) for flow in flows[1:]] == [1, 1]


# -- in any order

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
    assert not committing._agenda
    assert not any(committing._ended.values())


def test_what_is_refused_changes_nothing() -> None:
    net = AdaptiveNetwork(CLUSTER)
    flow = net.send(0, 2, 10_000, 0, "a").flow
    net.advance(100)
    net.commit(100)
    for call in (
        lambda: net.send(0, 2, 1, 99, "b"),
        lambda: net.send(0, 77, 1, 200, "b"),
        lambda: net.send(0, 2, -1, 200, "b"),
        lambda: net.send(0, 2, 1, 200, "a"),
        lambda: net.retime(flow, 300),
        lambda: net.retract(flow),
        lambda: net.way(0, 2, 200),
        lambda: net.advance(99),
    ):
        with pytest.raises(netsim.NetsimError):
            call()
    assert net.next_completion() == (2200, flow)
    assert net.flows == [flow]


# -- how it is chosen and shown

TOML = """
[network]
routing = "adaptive"

[network.graph]
hosts = ["a", "b"]
switches = ["x", "y"]
link = [
  {from = "a", to = "x", gbps = 8}, {from = "x", to = "b", gbps = 8},
  {from = "a", to = "y", gbps = 8}, {from = "y", to = "b", gbps = 8},
]
"""


def test_the_description_says_it_and_a_wrong_word_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.toml"
    path.write_text(TOML)
    topology = netsim.load(path)
    assert topology.describe()["routing"] == "adaptive"
    assert isinstance(netsim.routed_network(topology), AdaptiveNetwork)
    assert CLUSTER.routing == "adaptive"
    path.write_text(TOML.replace('"adaptive"', '"random"'))
    with pytest.raises(SpecError, match=r"net\.toml:3: network\.routing: 'random' is not one of ecmp, adaptive"):
        netsim.load(path)
    with pytest.raises(SpecError, match="routing: 'random' is not one of"):
        topology.routing = "random"


def test_networks_that_cannot_follow_it_say_so() -> None:
    for kind in (Network, RoutedNetwork):
        with pytest.raises(SpecError, match=r"network\.routing: \"adaptive\" is for"):
            kind(CLUSTER)


def test_the_command_shows_each_flows_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.toml").write_text(TOML)
    (tmp_path / "flows.csv").write_text("src,dst,bytes,start_ns,key\na,b,1000,0,first\na,b,1000,0,second\n")
    done = {}
    for routing in ("", "adaptive", "ecmp"):
        content = _command(tmp_path, routing)
        shown = content["statistics"]
        assert shown["routing"] == content["network"]["routing"] == (routing or "adaptive")
        assert f"{routing or 'adaptive'} routing" in capsys.readouterr().out
        done[routing] = content["completion_ns"]
        links = [flow["choices"][0]["links"][0] for flow in shown["flows"]]
        assert links == ([HASHED, HASHED] if routing == "ecmp" else [HASHED, OTHER])
    assert done[""] == done["adaptive"] == {"first": 1000, "second": 1000}
    assert done["ecmp"] == {"first": 2000, "second": 2000}


def _command(tmp_path: Path, routing: str) -> Any:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    out = tmp_path / "out.json"
    words = ["--network", str(tmp_path / "net.toml"), "--flows", str(tmp_path / "flows.csv"), "--json", str(out)]
    assert command.run(parser.parse_args([*words, *(["--routing", routing] if routing else [])])) == 0
    return json.loads(out.read_text())


def test_the_command_refuses_a_wrong_word_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "net.toml").write_text(TOML.replace('"adaptive"', "5"))
    (tmp_path / "flows.csv").write_text("src,dst,bytes,start_ns\na,b,1000,0\n")
    with pytest.raises(UsageError) as caught:
        _command(tmp_path, "")
    assert "net.toml:3: network.routing: expected a string, not 5" in caught.value.message
