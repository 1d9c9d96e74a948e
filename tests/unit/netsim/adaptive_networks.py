"""Networks on which adaptive routing is tested."""

from __future__ import annotations

import netsim
from netsim import Topology
from netsim.topology import ecmp, graph


def cluster(latency_ns: int = 100) -> Topology:
    server = {"kind": "host", "gpus": 1, "nics": 1, "nic_gbps": 80, "pcie_gbps": 400}
    fabric = {
        "kind": "leaf-spine",
        "servers_per_leaf": 2,
        "spines": 3,
        "uplink_gbps": 40,
        "latency_ns": latency_ns,
    }
    return netsim.build({"routing": "adaptive", "server": server, "fabric": fabric}, servers=6)


CLUSTER = cluster()


def two_routes(wide_gbps: float = 8.0) -> Topology:
    """Returns a network of host a and host b, joined over x (8 Gb/s) and over y."""
    cables = [("a", "x", 8.0, 0), ("x", "b", 8.0, 0), ("a", "y", wide_gbps, 0), ("y", "b", wide_gbps, 0)]
    topology = graph.build(["a", "b"], cables)
    topology.routing = "adaptive"
    return topology


HASHED = f"a->{'xy'[ecmp(0, 1, 2)]}"
OTHER = f"a->{'yx'[ecmp(0, 1, 2)]}"
"""The first link of the route that ECMP's hash gives on ``two_routes``, and of the other one."""
