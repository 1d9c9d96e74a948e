"""Adaptive routing: which route a flow takes, worked out by hand."""

from __future__ import annotations

import pytest

import netsim
from netsim import AdaptiveNetwork, Group, Network, RoutedNetwork
from tests.unit.netsim.adaptive_networks import CLUSTER, HASHED, OTHER, cluster, two_routes


def _taken(net: RoutedNetwork, flow: int) -> list[tuple[int, str]]:
    return [(choice.at_ns, choice.links[0]) for choice in net.choices(flow)]


def test_the_second_flow_avoids_the_first_and_the_third_finds_a_tie() -> None:
    net = AdaptiveNetwork(two_routes())
    flows = [net.send(0, 1, 1000, at_ns, key).flow for key, at_ns in (("a", 0), ("b", 10), ("c", 20))]
    # 1000 bytes at 1 byte/ns each on a way of its own; the third shares the hash's choice from 20 on.
    assert net.next_completion() == (1010, flows[1])
    net.advance(20)
    assert [_taken(net, flow) for flow in flows] == [[(0, HASHED)], [(10, OTHER)], [(20, HASHED)]]
    assert net.choices(flows[1])[0].loads == ((1 / 8, 2 / 8) if HASHED == "a->y" else (2 / 8, 1 / 8))
    assert net.advance(5000) == [(1010, flows[1]), (1980, flows[0]), (2000, flows[2])]


def test_a_flow_that_ends_at_the_instant_is_no_load() -> None:
    net = AdaptiveNetwork(two_routes())
    net.send(0, 1, 1000, 0, "a")
    late, after = net.send(0, 1, 10, 999, "b").flow, net.send(0, 1, 10, 1009, "c").flow
    net.advance(2000)
    assert _taken(net, late) == [(999, OTHER)]
    assert _taken(net, after) == [(1009, HASHED)]


def test_flows_of_one_instant_choose_in_the_order_of_their_keys() -> None:
    for order in (("a", "b"), ("b", "a")):
        net = AdaptiveNetwork(two_routes())
        flows = {key: net.send(0, 1, 1000, 0, key).flow for key in order}
        assert _taken(net, flows["a"]) == [(0, HASHED)]
        assert _taken(net, flows["b"]) == [(0, OTHER)]


def test_the_wide_way_takes_its_share() -> None:
    net = AdaptiveNetwork(two_routes(wide_gbps=20.0))
    flows = [net.send(0, 1, 10_000, i, i).flow for i in range(4)]
    net.advance(10)
    # Loads with the flow on x and y: 1/8 1/20, 1/8 2/20, 1/8 3/20, 2/8 3/20.
    assert [_taken(net, flow)[0][1] for flow in flows] == ["a->y", "a->y", "a->x", "a->y"]


def test_a_late_flow_sends_a_later_one_elsewhere_and_the_change_is_told() -> None:
    net = AdaptiveNetwork(two_routes())
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
    net = AdaptiveNetwork(two_routes())
    net.add(Group(10_000, ((_link(net, OTHER), 2),), latency_ns=50), 0, "g")
    net.add(Group(10_000, ((_link(net, HASHED), 3),)), 0, "h")
    early, late = net.send(0, 1, 1000, 20, "k").flow, net.send(0, 1, 10, 60, "l").flow
    net.advance(100)
    assert net.choices(early)[0].links[0] == OTHER
    assert sorted(x for x in net.choices(late)[0].loads if x) == [4 / 8, 4 / 8]
    assert net.choices(late)[0].links[0] == HASHED


def test_a_flow_is_moved_to_the_least_loaded_of_what_is_left() -> None:
    topology = cluster(latency_ns=0)
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
        lambda: net.paths_of(0, 2, 200),
        lambda: net.advance(99),
    ):
        with pytest.raises(netsim.NetsimError):
            call()
    assert net.next_completion() == (2200, flow)
    assert net.flows == [flow]
