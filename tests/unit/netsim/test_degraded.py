"""Links that fail, recover and change: answers do not depend on whether the failure or the flow was told first."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import netsim
from netsim import Changes, RoutedNetwork, Topology
from netsim.units import ns_from_ticks, rate_from_gbps, ticks_from_ns
from tests.unit.netsim import oracle


def _cluster() -> Topology:
    server = {"kind": "host", "gpus": 1, "nics": 1, "nic_gbps": 80, "pcie_gbps": 400}
    fabric = {"kind": "leaf-spine", "servers_per_leaf": 2, "spines": 3, "uplink_gbps": 40, "latency_ns": 100}
    return netsim.build({"server": server, "fabric": fabric}, servers=6)


CLUSTER = _cluster()
UPLINKS = [i for i, link in enumerate(CLUSTER.links) if link.name.startswith("leaf")]

SENDS = st.lists(
    st.tuples(st.just("send"), st.integers(0, 5), st.integers(0, 5), st.integers(0, 9000), st.integers(0, 20_000)),
    min_size=1,
    max_size=8,
)
FAULTS = st.lists(
    st.one_of(
        st.tuples(st.just("down"), st.sampled_from(UPLINKS), st.integers(1, 20_000)),
        st.tuples(st.just("down"), st.sampled_from(UPLINKS), st.integers(1, 20_000)),
        st.tuples(st.just("up"), st.sampled_from(UPLINKS), st.integers(1, 30_000)),
        st.tuples(st.just("late"), st.sampled_from(UPLINKS), st.integers(1, 20_000)),
    ),
    max_size=8,
    unique_by=lambda fault: (fault[1], fault[2]),
)


def _play(steps: list[Any], waits: list[int]) -> tuple[RoutedNetwork, dict[int, int], dict[int, int]]:
    net = RoutedNetwork(CLUSTER)
    told: dict[int, int] = {}
    flows: dict[int, int] = {}

    def hear(changes: Changes) -> None:
        for moved in changes.moved:
            assert told.get(moved.flow) == moved.before_ns
            if moved.after_ns is None:
                del told[moved.flow]
            else:
                told[moved.flow] = moved.after_ns

    for (key, step), wait in zip(steps, waits, strict=True):
        match step:
            case ("send", src, dst, start_ns, nbytes):
                changes = net.send(src, dst, nbytes, start_ns, key)
                flows[key] = changes.flow
            case ("down", link, at_ns):
                changes = net.set_capacity(link, at_ns, 0)
            case ("up", link, at_ns):
                changes = net.set_capacity(link, at_ns, 40)
            case ("late", link, at_ns):
                changes = net.set_latency(link, at_ns, 700)
        hear(changes)
        told |= {flow: at_ns for at_ns, flow in net.advance(net.now_ns + wait)}
    return net, flows, told


@given(SENDS, FAULTS, st.randoms(use_true_random=False))
@settings(max_examples=500, suppress_health_check=list(HealthCheck))
def test_failures_and_flows_in_any_order(sends: list[Any], faults: list[Any], random: Any) -> None:
    numbered = list(enumerate(sends + faults))
    answers = []
    for _ in range(2):
        random.shuffle(numbered)
        net, flows, told = _play(numbered, [random.choice([0, 0, 500, 4000]) for _ in numbered])
        told |= {flow: at_ns for at_ns, flow in net.advance(1 << 40)}
        answers.append({key: net.completion_ticks(flow) for key, flow in flows.items()})
        for key, at in answers[-1].items():
            assert told.get(flows[key]) == (None if at is None else ns_from_ticks(at))
    assert answers[0] == answers[1]
    assert answers[0] == oracle.completions(*_facts(net, flows, sends, faults))


def _facts(net: RoutedNetwork, flows: dict[int, int], sends: list[Any], faults: list[Any]) -> tuple[Any, Any]:
    facts = {}
    for key in flows:
        _, src, dst, start_ns, nbytes = sends[key]
        way = net.paths_of(src, dst, start_ns)
        paths = [(ticks_from_ns(at), tuple((link, 1) for link in path)) for at, path in way.paths]
        facts[key] = oracle.Fact(key, ticks_from_ns(way.first_byte_ns), nbytes, paths[0][1], ways=tuple(paths[1:]))
    steps = {i: {0: rate_from_gbps(link.gbps)} for i, link in enumerate(CLUSTER.links)}
    for kind, link, at_ns in faults:
        if kind != "late":
            steps[link][ticks_from_ns(at_ns)] = rate_from_gbps(0 if kind == "down" else 40)
    return facts, {link: sorted(s.items()) for link, s in steps.items()}


def test_a_flow_leaves_a_link_that_goes_down_after_history_was_committed() -> None:
    net = RoutedNetwork(CLUSTER)
    flow = net.send(0, 4, 10_000, 0, "a").flow
    assert net.next_completion() == (2200, flow)
    net.advance(1000)
    net.commit(1000)
    used = next(link for link in CLUSTER.route(0, 4) if CLUSTER.links[link].name.startswith("leaf0:up"))
    net.set_capacity(used, 1200, 0)
    assert net.next_completion() == (2200, flow)
    for spine in range(3):
        net.set_capacity(CLUSTER.link_id(f"leaf0:up{spine}"), 1200, 0)
    assert net.next_completion() is None
    net.set_capacity(CLUSTER.link_id("leaf0:up2"), 5000, 40)
    assert net.next_completion() == (6000, flow)


def test_a_flow_without_bytes_completes_though_its_route_goes_down_before_its_start() -> None:
    net = RoutedNetwork(CLUSTER)
    used = next(link for link in CLUSTER.route(0, 2) if CLUSTER.links[link].name.startswith("leaf0:up"))
    net.set_capacity(used, 1, 0)
    flow = net.send(0, 2, 0, 0, "a").flow
    assert net.advance(1000) == [(200, flow)]


def test_a_slow_nic_slows_what_crosses_it() -> None:
    net = RoutedNetwork(CLUSTER)
    flow = net.send(0, 1, 10_000, 0, "a").flow
    assert net.next_completion() == (1000, flow)
    net.set_capacity(CLUSTER.link_id("node000/nic0:out"), 500, 8)
    assert net.next_completion() == (5500, flow)


def test_bad_faults_change_nothing() -> None:
    net = RoutedNetwork(CLUSTER)
    flow = net.send(0, 1, 10_000, 0, "a").flow
    net.advance(100)
    net.commit(100)
    for call in (
        lambda: net.set_capacity(999, 200, 8),
        lambda: net.set_capacity(0, 200, -1),
        lambda: net.set_capacity(0, 99, 8),
        lambda: net.set_latency(0, 200, -5),
        lambda: net.send(0, 77, 1, 200, "b"),
        lambda: net.send(0, 1, -1, 200, "b"),
    ):
        with pytest.raises(netsim.NetsimError):
            call()
    assert net.next_completion() == (1000, flow)
