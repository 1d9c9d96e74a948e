"""Links with queues: worked out by hand, and the same whatever the order in which the facts are told."""

from __future__ import annotations

import random

import pytest

from netsim import Changes, Group, Link, Network, RoutedNetwork, SpecError, Topology, build
from netsim.simulation import queues
from netsim.topology.congestion import Congestion

QUEUES, DCQCN = {"kind": "queues"}, {"kind": "dcqcn"}
SHORT = {"kind": "dcqcn", "mark_from_us": 0.5, "mark_to_us": 2, "cut_every_us": 0.5, "recover_every_us": 5}
GRAPH = {
    "hosts": ["a", "b", "c", "d"],
    "switches": ["s", "t", "u"],
    "link": [
        *({"from": host, "to": "s", "gbps": 80, "latency_ns": 100} for host in "ab"),
        *({"from": host, "to": "t", "gbps": 80, "latency_ns": 100} for host in "cd"),
        *({"from": "s", "to": middle, "gbps": 80, "latency_ns": 100} for middle in "tu"),
        {"from": "u", "to": "t", "gbps": 80, "latency_ns": 100},
    ],
}


def star(congestion: dict[str, object], hosts: str = "abcd") -> Topology:
    links = [{"from": host, "to": "s", "gbps": 80, "latency_ns": 100} for host in hosts]
    return build({"graph": {"hosts": list(hosts), "switches": ["s"], "link": links}, "congestion": congestion})


def test_one_flow_takes_its_bytes_one_packet_more_and_the_latencies() -> None:
    """100 packets of 4,096 bytes at 10 bytes/ns: 40,960 ns; the last one once more on the second link; 2 x 100 ns."""
    for congestion in (QUEUES, DCQCN):
        net = RoutedNetwork(star(congestion))
        flow = net.send(0, 1, 409_600, 1_000, "x").flow
        assert net.next_completion() == (1_000 + 40_960 + 410 + 200, flow)  # 409.6 ns, up to a whole ns


def test_a_flow_that_ends_at_the_present_is_told() -> None:
    """A packet of 1,000 bytes at 10 bytes/ns takes 100 ns on each of two links, and their latencies."""
    net = RoutedNetwork(star({**QUEUES, "packet_nbytes": 1_000}))
    flow = net.send(0, 1, 1_000, 0, "x").flow
    assert net.advance(400) == [(400, flow)]


def test_a_short_flow_waits_for_all_that_is_queued_before_it() -> None:
    """Two senders of 409,600 bytes leave 204,800 bytes at the switch after 20,480 ns; a packet that reaches it then
    waits 20,480 ns for them. A fluid link gives it a third of its rate at once.
    """
    net = RoutedNetwork(star(QUEUES))
    for sender in (0, 1):
        net.send(sender, 3, 409_600, 0, sender)
    short = net.send(2, 3, 4_096, 20_480, 2).flow
    net.advance(1_000_000)
    done_ns = net.completion_ns(short)
    assert done_ns is not None
    assert done_ns == pytest.approx(20_480 + 410 + 20_480 + 410 + 200, abs=900)


def test_a_queue_is_shared_in_proportion_to_what_arrives() -> None:
    """a sends to c and d by turns, b to c alone: at c's link 5 bytes/ns meet 10, so b gets two thirds of it."""
    net = RoutedNetwork(star(QUEUES))
    net.send(0, 2, 400_000, 0, 0)
    net.send(0, 3, 400_000, 0, 1)
    alone = net.send(1, 2, 400_000, 0, 2).flow
    net.advance(1_000_000)
    done_ns = net.completion_ns(alone)
    assert done_ns is not None
    assert done_ns == pytest.approx(60_000, rel=0.05)


def test_marks_slow_senders_down_and_short_flows_never_hear_of_them() -> None:
    ends = []
    for congestion in (QUEUES, SHORT):
        net = RoutedNetwork(star(congestion))
        for sender in range(3):
            net.send(sender, 3, 409_600, 0, sender)
        net.send(3, 0, 4_096, 0, 3)
        net.advance(10_000_000)
        done = {net.key(flow): net.completion_ns(flow) for flow in net.flows}
        ends.append(done)
    assert max(ends[0].values()) == pytest.approx(3 * 40_960, rel=0.01)
    assert max(ends[1].values()) > 1.1 * max(ends[0].values())
    assert ends[0][3] == ends[1][3]


def test_a_group_takes_its_links_at_once_and_shares_them_with_another() -> None:
    links = [Link("x", 80), Link("y", 80)]
    net = Network(Topology(links, ["a"], _NoRoutes(), congestion=Congestion(dcqcn=False)))
    alone = net.add(Group(1 << 20, ((0, 1), (1, 2))), 0, 0).flow
    net.advance(1_000_000)
    assert net.completion_ns(alone) == pytest.approx(2 * (1 << 20) / 10, abs=2)
    pair = [net.add(Group(1 << 20, ((0, 1),)), 1_000_000, key).flow for key in (1, 2)]
    net.advance(2_000_000)
    ends = [net.completion_ns(flow) for flow in pair]
    assert max(end for end in ends if end) == pytest.approx(1_000_000 + 2 * (1 << 20) / 10, abs=4)


class _NoRoutes:
    def routes(self, src: int, dst: int) -> list[tuple[int, ...]]:
        return []


def test_fields_that_do_not_fit_are_named() -> None:
    for wrong, field in (
        ({"kind": "tcp"}, "kind"),
        ({"kind": "queues", "mark_from_us": 1}, "mark_from_us"),
        ({"kind": "dcqcn", "mark_from_us": 8, "mark_to_us": 8}, "mark_to_us"),
    ):
        with pytest.raises(SpecError, match=f"network.congestion.{field}"):
            star(wrong)


class History:
    """Random facts, told late, changed and withdrawn; what was told is kept."""

    def __init__(self, seed: int, congestion: dict[str, object]) -> None:
        self.rng = random.Random(seed)
        self.spec = {"graph": GRAPH, "congestion": congestion}
        self.net = RoutedNetwork(build(self.spec))
        self.told: dict[int, int] = {}
        self.flows: dict[int, int] = {}
        self.facts: dict[int, tuple[object, ...]] = {}
        self.ended: dict[int, int] = {}
        self.turns: list[tuple[int, int, float]] = []

    def hear(self, changes: Changes) -> None:
        for moved in changes.moved:
            assert self.told.get(moved.flow) == moved.before_ns
            assert moved.before_ns != moved.after_ns
            if moved.after_ns is None:
                del self.told[moved.flow]
            else:
                self.told[moved.flow] = moved.after_ns

    def step(self) -> None:
        rng, net = self.rng, self.net
        start_ns = rng.randrange(net.horizon_ns, net.now_ns + 3_000)
        choice, key = rng.randrange(10), rng.randrange(10**6)
        if choice < 5 and key not in self.facts:
            self.facts[key] = (
                "send",
                rng.randrange(4),
                rng.randrange(4),
                rng.choice([0, 900, 30_000, 200_000]),
                start_ns,
            )
        elif choice == 5 and key not in self.facts:
            hops = tuple((link, rng.randint(1, 2)) for link in rng.sample(range(14), 3))
            self.facts[key] = ("add", Group(rng.randrange(90_000), hops, rng.choice([None, 9.0])), start_ns)
        elif choice == 6:
            self.turns.append((rng.randrange(14), start_ns, rng.choice([0, 40, 80])))
            self.hear(net.set_capacity(*self.turns[-1]))
            return
        elif choice in (7, 8) and self.flows:
            key = rng.choice(sorted(self.flows))
            flow = self.flows[key]
            if net._starts[flow] < net.horizon_ns:
                return
            if choice == 7:
                self.facts[key] = (*self.facts[key][:-1], start_ns)
                self.hear(net.retime(flow, start_ns))
            else:
                self.hear(net.retract(flow))
                self.told.pop(flow, None)
                del self.flows[key], self.facts[key]
            return
        else:
            for at_ns, flow in net.advance(net.now_ns + rng.randrange(4_000)):
                assert flow not in self.told
                self.told[flow] = at_ns
            net.next_completion()
            if rng.randrange(3) == 0:
                self.commit(rng.randint(net.horizon_ns, net.now_ns))
            return
        changes = tell(net, key, self.facts[key])
        self.flows[key] = changes.flow
        self.hear(changes)

    def commit(self, horizon_ns: int) -> None:
        self.net.commit(horizon_ns)
        left = set(self.net.flows)
        for key, flow in [(key, flow) for key, flow in self.flows.items() if flow not in left]:
            self.ended[key] = self.told.pop(flow)
            assert self.ended[key] <= horizon_ns
            del self.flows[key]

    def verify(self) -> None:
        plain = RoutedNetwork(build(self.spec))
        for turn in self.turns:
            plain.set_capacity(*turn)
        want = {key: tell(plain, key, fact).flow for key, fact in sorted(self.facts.items())}
        for net in (plain, self.net):
            while net.next_completion():
                net.advance(net.next_completion()[0])
        for key, flow in self.flows.items():
            assert self.net.completion_ticks(flow) == plain.completion_ticks(want[key]), key
        for key, done_ns in self.ended.items():
            assert plain.completion_ns(want[key]) == done_ns, key


def tell(net: RoutedNetwork, key: int, fact: tuple[object, ...]) -> Changes:
    return net.send(*fact[1:], key) if fact[0] == "send" else net.add(*fact[1:], key)  # type: ignore[arg-type]


@pytest.mark.parametrize("congestion", [QUEUES, SHORT, {**SHORT, "ack_nbytes": 0, "packet_nbytes": 1000}])
@pytest.mark.parametrize("examples", [60, pytest.param(1500, marks=pytest.mark.thorough)])
def test_the_order_of_telling_makes_no_difference(
    congestion: dict[str, object], examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "packet_nbytes" in congestion:  # keys have so little room between them that flows are numbered anew
        monkeypatch.setattr(queues, "GAP", 2)
    for seed in range(examples):
        history = History(seed, congestion)
        for _ in range(40):
            history.step()
        history.verify()
