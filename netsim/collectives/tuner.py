"""NCCL's cost model: what each algorithm and protocol would cost, and which is chosen.

Formulas and constants: NVIDIA/nccl v2.30.7, src/graph/tuning.cc.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log2

from netsim.collectives.hops import MembersByServer
from netsim.collectives.params import PROTOCOLS, REDUCTIONS, Params
from netsim.topology import ServerFacts

__all__ = ["REDUCTIONS", "Choice", "choices", "choose", "measured", "wire_bytes"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to run a collective. ``bus_gbs`` is what one rank's wire carries per direction; latency in us."""

    algorithm: str
    protocol: str
    channels: int
    latency_us: float
    bus_gbs: float

    def time_us(self, wire_bytes: float) -> float:
        """NCCL's estimate for a message that puts ``wire_bytes`` on each rank's wire."""
        return self.latency_us + wire_bytes / (1000 * self.bus_gbs)


def wire_bytes(op: str, nbytes: int, ranks: int) -> float:
    """Bytes each rank sends in a ring, for ``nbytes`` as nccl-tests counts them."""
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks * nbytes
    if op in ("all_gather", "reduce_scatter", "all_to_all"):
        return (ranks - 1) / ranks * nbytes
    return float(nbytes)


def choices(op: str, where: MembersByServer, server: ServerFacts, params: Params) -> list[Choice]:
    """Every algorithm and protocol that can run ``op`` here."""
    found = []
    for protocol in PROTOCOLS:
        found.append(_ring(op, protocol, where, server, params))
        if op == "all_reduce":
            found.append(_tree(protocol, where, server, params))
    if server.nvls and where.ranks > 1:
        found += _nvls(op, where, server, params)
    if op in ("all_gather", "reduce_scatter") and where.nodes > 1 and where.ranks == where.nodes:
        found.append(_pat(where, server, params))
    return found


def choose(op: str, nbytes: int, where: MembersByServer, server: ServerFacts, params: Params) -> Choice:
    """The choice of least estimated time; the first in NCCL's order if several tie."""
    carried = wire_bytes(op, nbytes, where.ranks)
    return min(choices(op, where, server, params), key=lambda c: c.time_us(carried))


def measured(choice: Choice, op: str, nbytes: int, ranks: int, params: Params) -> Choice:
    """The choice with the latency and bandwidth that were measured where NCCL's model is only made to choose.

    Of a ring with the Simple protocol: a port carries a little less than NCCL counts on, a pipeline's first and last
    step overlap with nothing, and the start takes longer.
    """
    if choice.algorithm != "ring" or choice.protocol != "simple" or not nbytes:
        return choice
    simple, carried = params.simple, wire_bytes(op, nbytes, ranks)
    turns_us = nbytes / ranks / 1e6 * simple.turn_us_per_mb[op]
    moving_us = carried / (1000 * choice.bus_gbs * simple.wire_efficiency)
    bus_gbs = carried / (1000 * (moving_us + turns_us))
    return replace(choice, latency_us=choice.latency_us + simple.ramp_us[op], bus_gbs=bus_gbs)


def _node_class(nodes: int) -> int:
    return 0 if nodes == 1 else 1 if nodes == 2 else 2


def _raw_gbs(where: MembersByServer, server: ServerFacts, params: Params) -> float:
    inside = params.gpu_gbs if server.kind == "nvswitch" else server.gpu_gbps / 8
    if where.nodes == 1:
        return inside
    rails = max(1, min(where.rails, server.nics))
    return min(inside, rails * server.nic_gbps / 8 * params.factor.net_efficiency)


def _intra_us(server: ServerFacts, params: Params) -> dict[str, tuple[float, float, float]]:
    return params.nvlink_us if server.kind == "nvswitch" else params.pci_us


def _ring(op: str, protocol: str, where: MembersByServer, server: ServerFacts, params: Params) -> Choice:
    p = PROTOCOLS.index(protocol)
    raw, n, size = _raw_gbs(where, server, params), where.ranks, _node_class(where.nodes)
    gbs = raw
    if protocol == "ll":
        gbs = min(params.limit.ll_total[size], raw * params.factor.ring_ll)
    elif protocol == "ll128":
        gbs = min(raw * params.factor.ring_ll128, params.limit.ring_ll128[size] * params.max_channels)
    steps = n - 1 if op != "all_reduce" else 2 * (n - 1)
    inter = 0 if where.nodes == 1 else where.nodes - 1 if op != "all_reduce" else 2 * (where.nodes - 1)
    overhead = params.net_overhead_us * (3 if protocol == "simple" else 1) if where.nodes > 1 else 0.0
    intra = max(_intra_us(server, params)["ring"][p], overhead)
    us = params.base_us["ring"][p] + (steps - inter) * intra + inter * params.net_us["ring"][p]
    if where.nodes > 1 and protocol == "simple" and op == "all_reduce":
        us *= params.factor.ring_net_simple_latency
    return Choice("ring", protocol, params.max_channels, us, gbs)


def _tree(protocol: str, where: MembersByServer, server: ServerFacts, params: Params) -> Choice:
    p, size = PROTOCOLS.index(protocol), _node_class(where.nodes)
    raw = _raw_gbs(where, server, params) * params.factor.tree
    if protocol == "ll":
        gbs = min(raw * params.factor.tree_ll, params.limit.ll_total[size])
    elif protocol == "ll128":
        gbs = min(raw * params.factor.ring_ll128, params.limit.tree_ll128[size] * params.max_channels)
    else:
        gbs = min(raw, params.limit.tree_simple[size] * params.max_channels)
    per_node = where.ranks / where.nodes
    us = params.base_us["tree"][p] + 2 * (
        (per_node - 1) * _intra_us(server, params)["tree"][p] + log2(where.nodes) * params.net_us["tree"][p]
    )
    return Choice("tree", protocol, params.max_channels, us, gbs)


def _nvls(op: str, where: MembersByServer, server: ServerFacts, params: Params) -> list[Choice]:
    intra, channels = params.nvlink_us["nvls"][2], params.nvls_channels
    n = where.ranks
    if where.nodes == 1 and op in ("all_reduce", "all_gather", "reduce_scatter"):
        # A port carries (n+1)/n of an all-reduce's bytes through the switch, where a ring's wire carries 2(n-1)/n.
        gain = 2 * (n - 1) / (n + 1) if op == "all_reduce" else 1.0
        return [Choice("nvls", "simple", channels, intra, params.gpu_gbs * params.factor.nvls * gain)]
    if where.nodes > 1 and op == "all_reduce" and where.rails > 1:
        per = n / where.nodes
        inside = params.gpu_gbs * params.factor.nvls * 2 * (per - 1) / (per + 1)
        limit = params.limit.nvls_tree[_node_class(where.nodes)] * channels
        net = where.rails * server.nic_gbps / 8 * params.factor.net_efficiency * (2 if where.nodes == 2 else 1)
        us = intra + 2 * log2(where.nodes) * params.net_us["nvls_tree"][2]
        return [Choice("nvls_tree", "simple", channels, us, min(inside, limit, net))]
    return []


def _pat(where: MembersByServer, server: ServerFacts, params: Params) -> Choice:
    us = params.base_us["pat"][2] + log2(where.nodes) * params.net_us["pat"][2]
    return Choice("pat", "simple", params.max_channels, us, _raw_gbs(where, server, params) * params.factor.pat)
