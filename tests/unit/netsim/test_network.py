"""The network in time: hand-computed cases."""

from __future__ import annotations

import pytest

import netsim
from netsim import Group, Moved
from netsim.simulation.groups import LinksLess


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


def test_a_group_that_lacks_hops_of_shared_links_moves_as_one_that_is_given_its_own() -> None:
    shared = ((0, 1), (1, 3), (2, 2))
    ends = []
    for links in (LinksLess(shared, ((0, 1), (1, 2))), ((1, 1), (2, 2))):
        net = _net(8, 8, 8)
        a = net.add(Group(1000, links), 0, "a").flow
        b = net.add(_flow(1000, 1), 0, "b").flow
        c = net.add(_flow(1000, 0), 0, "c").flow
        ends.append((net.advance(10_000), net.segments(a)))
        assert [net.completion_ns(flow) for flow in (a, b, c)] == [2000, 2000, 1000]
    assert ends[0] == ends[1]
    for less in (((3, 1),), ((0, 2),)):
        with pytest.raises(netsim.FlowError, match="lacks links"):
            _net(8, 8, 8, 8).add(Group(1, LinksLess(shared, less)), 0, "a")


def test_impossible_flows_leave_the_state_unchanged() -> None:
    net = _net(8)
    net.add(_flow(1000, 0), 0, "a")
    for group in (_flow(-1, 0), _flow(1, 5), Group(1, ((0, 0),))):
        with pytest.raises(netsim.FlowError):
            net.add(group, 0, "b")
    with pytest.raises(netsim.FlowError):
        net.add(_flow(1, 0), 0, "a")
    with pytest.raises(netsim.FlowError, match="cannot be sorted"):
        net.add(_flow(1, 0), 0, 7)
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


def test_only_what_a_late_flow_reaches_is_redone() -> None:
    net = _net(*[8] * 10)
    for link in range(10):
        for i in range(20):
            net.add(_flow(50, link), 100 * i, (link, i))
    net.advance(5000)
    before = net.counters()["redone"]
    net.add(_flow(1, 3), 60, (99, 0))  # that link is idle then
    assert net.counters()["redone"] - before == 1
    changes = net.add(_flow(100, 7), 50, (99, 1))
    assert {net.key(moved.flow)[0] for moved in changes.moved if moved.flow != changes.flow} == {7}


def test_rates_fall_and_rise_with_a_late_flow() -> None:
    # The late flow takes the first link from b, so b leaves more of the second to c: b ends later, c earlier.
    net = _net(8, 12)
    net.add(Group(2000, ((0, 1), (1, 1))), 0, "b")
    net.add(_flow(1000, 1), 0, "c")
    net.advance(10_000)
    changes = net.add(_flow(3000, 0), 0, "late")
    moved = {net.key(m.flow): (m.before_ns, m.after_ns) for m in changes.moved}
    assert moved["b"][1] > moved["b"][0]
    assert moved["c"][1] < moved["c"][0]


def test_memory_follows_what_is_not_committed() -> None:
    held = []
    for count in (500, 4000):
        net = _net(8, 8, 8, 8)
        paths = [(i % 4, (i + 1) % 4) for i in range(count)]
        net.play(net.table(paths, [300] * count, [400 * i for i in range(count)]))
        held.append(net.counters()["bytes"])
    assert held[1] < 1.5 * held[0]


def test_what_is_committed_is_gone_and_said_so() -> None:
    net = _net(8)
    done = net.add(_flow(100, 0), 0, "done").flow
    running = net.add(_flow(100_000, 0), 0, "running").flow
    net.advance(1000)
    net.commit(1000)
    for call in (lambda: net.completion_ns(done), lambda: net.retract(running), lambda: net.retime(running, 2000)):
        with pytest.raises(netsim.CommittedError):
            call()
    net.add(_flow(0, 0), 1000, "done")
    assert net.next_completion() == (100_100, running)
