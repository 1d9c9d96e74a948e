"""The network in time: hand-computed cases."""

from __future__ import annotations

import pytest

import netsim
from netsim import Group, Moved


class _NoRoutes:
    def routes(self, src: int, dst: int) -> list[tuple[int, ...]]:
        return []


def _net(*gbps: float) -> netsim.Network:
    links = [netsim.Link(f"l{i}", x) for i, x in enumerate(gbps)]
    return netsim.Network(netsim.Topology(links, ["a", "b"], _NoRoutes()))


def _flow(nbytes: int, *links: int) -> Group:
    return Group(nbytes, tuple((link, 1) for link in links))


def test_two_flows_share_and_the_survivor_speeds_up() -> None:
    net = _net(8)
    a = net.add(_flow(1000, 0), 0, "a").flow
    b = net.add(_flow(3000, 0), 0, "b").flow
    assert net.next_completion() == (2000, a)
    assert net.advance(10_000) == [(2000, a), (4000, b)]


def test_a_late_flow_moves_known_completions() -> None:
    net = _net(8)
    a = net.add(_flow(1000, 0), 0, "a").flow
    assert net.advance(1500) == [(1000, a)]
    changes = net.add(_flow(1000, 0), 500, "b")
    assert changes.moved == (Moved(a, 1000, 1500),)
    assert net.advance(2000) == [(2000, changes.flow)]


def test_zero_bytes_and_no_links_complete_at_the_start() -> None:
    net = _net(8)
    a = net.add(_flow(0, 0), 7, "a").flow
    b = net.add(_flow(100), 9, "b").flow
    assert net.advance(10) == [(7, a), (9, b)]


def test_impossible_flows_leave_the_state_unchanged() -> None:
    net = _net(8)
    net.add(_flow(1000, 0), 0, "a")
    for group in (_flow(-1, 0), _flow(1, 5), Group(1, ((0, 0),))):
        with pytest.raises(netsim.FlowError):
            net.add(group, 0, "b")
    with pytest.raises(netsim.FlowError):
        net.add(_flow(1, 0), 0, "a")
    assert [at for at, _ in net.advance(5000)] == [1000]


def test_commit_refuses_the_past() -> None:
    net = _net(8)
    net.advance(100)
    net.commit(50)
    with pytest.raises(netsim.CommittedError):
        net.add(_flow(1, 0), 49, "a")
    with pytest.raises(netsim.CommittedError):
        net.commit(20)
    with pytest.raises(netsim.CommittedError):
        net.advance(10)
