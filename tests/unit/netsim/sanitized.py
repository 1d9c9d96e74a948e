"""Run in a process of its own with the sanitized library: random histories through every call of the core."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from netsim import native

native.LIBRARY = Path(sys.argv[1])
native._stale = lambda: False

from netsim import Group, Link, RoutedNetwork, Topology, build  # noqa: E402
from netsim.topology.congestion import Congestion  # noqa: E402
from netsim.topology.graph import GraphRouter  # noqa: E402

SERVER = {"kind": "host", "nics": 1, "nic_gbps": 80}
FABRIC = {"kind": "leaf-spine", "servers_per_leaf": 2, "spines": 3, "uplink_gbps": 40}
CONGESTION = {"kind": "dcqcn", "mark_from_us": 0.2, "mark_to_us": 1, "recover_every_us": 5}


def history(seed: int) -> None:
    rng = random.Random(seed)
    network = {"server": SERVER, "fabric": FABRIC}
    if seed % 2:
        network["congestion"] = CONGESTION
    topology = build(network, servers=6)
    net = RoutedNetwork(topology)
    flows: list[int] = []
    for key in range(60):
        start_ns = rng.randrange(net.horizon_ns, net.now_ns + 2000)
        choice = rng.randrange(9)
        if choice < 3:
            flows.append(net.send(rng.randrange(6), rng.randrange(6), rng.randrange(20_000), start_ns, key).flow)
        elif choice < 5:
            links = tuple((link, rng.randint(1, 3)) for link in rng.sample(range(len(topology.links)), 4))
            flows.append(net.add(Group(rng.randrange(20_000), links, rng.choice([None, 9.0])), start_ns, key).flow)
        elif choice == 5:
            net.set_capacity(rng.randrange(len(topology.links)), start_ns, rng.choice([0, 8, 40]))
        elif flows and choice == 6:
            flow = rng.choice(flows)
            if net._starts[flow] >= net.horizon_ns:
                net.retime(flow, start_ns)
        elif flows and choice == 7:
            flow = rng.choice(flows)
            if net._starts[flow] >= net.horizon_ns:
                net.retract(flow)
        net.advance(net.now_ns + rng.randrange(600))
        net.next_completion()
        if rng.random() < 0.3:
            net.commit(rng.randint(net.horizon_ns, net.now_ns))
        flows = [flow for flow in flows if flow in net._keys]
        for flow in flows:
            net.segments(flow)
    net.counters()


for number in range(int(sys.argv[2])):
    history(number)
bulk = Topology([Link("a", 8.0), Link("b", 8.0)], ["x"], GraphRouter((), {}))
many = RoutedNetwork(bulk)
once = RoutedNetwork(bulk)
once.play(once.table([(0,), (1,), (0, 1)] * 50, [500, 0, 700] * 50, list(range(150))))
waiting = RoutedNetwork(Topology(bulk.links, ["x"], GraphRouter((), {}), congestion=Congestion(dcqcn=True)))
waiting.play(waiting.table([(0,), (1,), (0, 1)] * 50, [500, 0, 700] * 50, list(range(150))))
print("done")
