"""Makes NCCL's choice of algorithm and protocol by NCCL's own cost model.

Formulas and constants: NVIDIA/nccl v2.30.7, src/graph/tuning.cc; ``Params.of_version`` has older ones. The model is
made to choose; what a kernel really takes is in ``timing``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from netsim.collectives import provider_tuners
from netsim.collectives.hops import MembersByServer
from netsim.collectives.params import PROTOCOLS, REDUCTIONS, Params
from netsim.collectives.settings import ALGORITHMS, NcclSettings
from netsim.topology import ServerFacts

__all__ = ["REDUCTIONS", "Choice", "choices", "choose", "ring_hops", "tree_correction", "wire_bytes"]

TREE_CORRECTION = {
    "ll": "1.0 1.0 1.0 1.0 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9",
    "ll128": "1.0 1.0 1.0 1.0 1.0 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9",
    "simple": ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9 .9",
}
"""The share of a tree's bandwidth that NCCL expects for messages of 64 B, 128 B and so on; 1 for larger ones."""
_CORRECTIONS = {protocol: [float(x) for x in text.split()] for protocol, text in TREE_CORRECTION.items()}


PCIE_CHANNELS = 4
PCIE_SHARE = 0.65
"""The share of PCIe that NCCL counts on: 48 of the 63 GB/s of Gen 5 x16, and its search settles on rings of 40 (NCCL's
log).
"""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to run a collective. ``bus_gbs`` is the rate of one rank's wire per direction; latency in us."""

    algorithm: str
    protocol: str
    channels: int
    latency_us: float
    bus_gbs: float
    corrected: bool = False
    """True if NCCL's model expects that the pipeline is not full for middle sizes."""

    def time_us(self, op: str, nbytes: int, wire_bytes: float) -> float:
        """NCCL's estimate for a message of ``nbytes`` that puts ``wire_bytes`` on each rank's wire."""
        share = tree_correction(self.protocol, nbytes) if self.corrected else 1.0
        return self.latency_us + wire_bytes / (1000 * self.bus_gbs * share)


def tree_correction(protocol: str, nbytes: int) -> float:
    """NCCL's correction of a tree's bandwidth: the tree's pipeline is not full for middle sizes."""
    factors, place = _CORRECTIONS[protocol], (nbytes >> 6).bit_length() - 1
    return factors[place] if 0 <= place < len(factors) else 1.0


def wire_bytes(op: str, nbytes: int, ranks: int) -> float:
    """The bytes that each rank sends in a ring, for ``nbytes`` as nccl-tests counts them."""
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks * nbytes
    if op in ("all_gather", "reduce_scatter", "all_to_all"):
        return (ranks - 1) / ranks * nbytes
    return float(nbytes)


def ring_hops(op: str, count: int) -> int:
    """The hops that a byte makes in a ring of ``count``: an all-reduce goes around twice."""
    return 2 * (count - 1) if op == "all_reduce" else count - 1


def choices(
    op: str, where: MembersByServer, server: ServerFacts, params: Params, settings: NcclSettings
) -> list[Choice]:
    """Every algorithm and protocol that can run ``op`` here, in NCCL's order."""
    channels = channel_count(where, server, params, settings)
    found: list[Choice] = []
    for protocol in PROTOCOLS:
        if protocol == "ll128" and not (server.nvlink or "ll128" in settings.protocols.get(op, ())):
            continue
        if op == "all_reduce":
            found.append(_tree(protocol, where, server, params, channels))
        found.append(_ring(op, protocol, where, server, params, settings, channels))
    if server.nvls and where.ranks > 1:
        found += _nvls(op, where, server, params, settings)
    alone = where.nodes > 1 and where.ranks == where.nodes
    if op in ("all_gather", "reduce_scatter") and alone and settings.pat:
        found.append(_pat(where, server, params, channels))
    return found


def choose(
    op: str, nbytes: int, where: MembersByServer, server: ServerFacts, params: Params, settings: NcclSettings
) -> Choice:
    """The choice of the provider's tuner, or else the one with the least estimated time among those that the settings
    allow; among all if they allow none.
    """
    found = choices(op, where, server, params, settings)
    # The model of the user's version of NCCL chooses; how long the choice takes does not depend on it.
    expected = choices(op, where, server, params.of_version(settings.version), settings)
    algorithms = settings.algorithms.get(op, frozenset(ALGORITHMS))
    protocols = settings.protocols.get(op, frozenset(PROTOCOLS))
    ways = list(zip(found, expected, strict=True))
    allowed = [way for way in ways if way[0].algorithm.replace("_", "") in algorithms and way[0].protocol in protocols]
    told = provider_tuners.chosen(server.tuner, op, nbytes, where.ranks, where.nodes)
    for choice, _ in allowed:
        if told == (choice.algorithm, choice.protocol):
            return choice
    carried = wire_bytes(op, nbytes, where.ranks)
    return min(allowed or ways, key=lambda way: way[1].time_us(op, nbytes, carried))[0]


def channel_count(where: MembersByServer, server: ServerFacts, params: Params, settings: NcclSettings) -> int:
    """The number of channels of a communicator's rings and trees."""
    return settings.channels(found_channels(where, server, params))


def found_channels(where: MembersByServer, server: ServerFacts, params: Params) -> int:
    """The number of channels before the user's limits. NCCL makes two of each ring that its search finds."""
    if not server.nvlink:
        return PCIE_CHANNELS
    if where.nodes == 1:
        return params.max_channels
    found = params.net_channels_per_rail * _rails(where, server)
    return 2 * found if found < params.net_channels_double_below else found


def _rails(where: MembersByServer, server: ServerFacts) -> int:
    return max(1, min(where.rails, len(server.usable_nics)))


def _node_class(nodes: int) -> int:
    return 0 if nodes == 1 else 1 if nodes == 2 else 2


def _raw_gbs(where: MembersByServer, server: ServerFacts, params: Params) -> float:
    inside = _inside_gbs(server, params)
    if where.nodes == 1:
        return inside
    return min(inside, _rails(where, server) * server.nic_gbps / 8 * params.factor.net_efficiency)


def _ll_gbs(where: MembersByServer, server: ServerFacts, params: Params) -> float:
    """The most GB/s that LL moves: in a server by the GPU's limit, between servers by that of the hosts' proxies."""
    if where.nodes == 1:
        return params.limit.ll_total
    pair = params.limit.ll_between_amd if server.amd else params.limit.ll_between
    return pair[0 if where.nodes == 2 else 1]


def _tree_gbs(where: MembersByServer, server: ServerFacts, params: Params) -> float:
    """The GB/s that NCCL counts on for trees before its limits: a link carries both ways what it carries one way in
    rings.
    """
    raw = _raw_gbs(where, server, params)
    if where.nodes > 2 or (where.nodes == 1 and where.ranks > 2):
        return raw
    # Two GPUs: the way up and the way down use different directions. Two servers: each card carries half as much as the
    # GPUs, so that NCCL searches for trees that are up to twice as fast inside of servers as between them.
    twice = 2 * raw
    return twice if where.nodes == 1 or where.ranks == 2 else min(twice, _inside_gbs(server, params))


def _inside_gbs(server: ServerFacts, params: Params) -> float:
    return params.graph_gbs if server.nvlink else server.gpu_gbps / 8 * PCIE_SHARE


def intra_us(server: ServerFacts, params: Params) -> dict[str, tuple[float, float, float]]:
    """NCCL's latency of a hop inside a server."""
    return params.nvlink_us if server.nvlink else params.pci_us


def inter_us(algorithm: str, protocol: int, where: MembersByServer, server: ServerFacts, params: Params) -> float:
    """NCCL's latency of a hop between servers; with one GPU a server nothing hides it. What the network's plugin
    declares comes on top, with Simple twice: a flush follows the data.
    """
    own = params.net_us["tree" if where.ranks == where.nodes else algorithm][protocol]
    return own + server.plugin_us * (2 if PROTOCOLS[protocol] == "simple" else 1)


def _ring(
    op: str,
    protocol: str,
    where: MembersByServer,
    server: ServerFacts,
    params: Params,
    settings: NcclSettings,
    channels: int,
) -> Choice:
    p = PROTOCOLS.index(protocol)
    raw = gbs = _raw_gbs(where, server, params)
    size = _node_class(where.nodes)
    if protocol == "ll":
        gbs = min(_ll_gbs(where, server, params), raw * params.factor.ring_ll)
    elif protocol == "ll128":
        gbs = min(
            raw * params.factor.ring_ll128, params.limit.ring_ll128[size] * found_channels(where, server, params) // 2
        )
    if op in ("broadcast", "reduce"):
        hop_us = params.net_us["ring"] if where.nodes > 1 else intra_us(server, params)["ring"]
        return Choice("ring", protocol, channels, params.base_us["ring"][p] + hop_us[p], gbs)
    steps, inter = ring_hops(op, where.ranks), ring_hops(op, where.nodes)
    overhead = 0.0
    if where.nodes > 1:
        own = params.net_overhead_us * (2 if server.amd else 1)
        overhead = own if settings.net_overhead_us is None else settings.net_overhead_us
        overhead *= 3 if protocol == "simple" else 1
    intra = max(intra_us(server, params)["ring"][p], overhead)
    us = params.base_us["ring"][p] + (steps - inter) * intra + inter * inter_us("ring", p, where, server, params)
    if where.nodes > 1 and protocol == "simple" and op == "all_reduce":
        us *= params.factor.ring_net_simple_latency
    return Choice("ring", protocol, channels, us, gbs)


def _tree(protocol: str, where: MembersByServer, server: ServerFacts, params: Params, channels: int) -> Choice:
    p, size = PROTOCOLS.index(protocol), _node_class(where.nodes)
    rings = found_channels(where, server, params) // 2
    raw = _tree_gbs(where, server, params)
    gbs = min(raw * params.factor.tree, params.limit.tree_simple[size] * rings)
    if protocol == "ll":
        gbs = min(gbs * params.factor.tree_ll, _ll_gbs(where, server, params))
    elif protocol == "ll128":
        gbs = min(gbs * (7 / 9 if where.nodes == 1 else 120 / 128), params.limit.tree_ll128[size] * rings)
    per_node = where.ranks // where.nodes
    us = params.base_us["tree"][p] + 2 * (
        (per_node - 1) * intra_us(server, params)["tree"][p]
        + (where.nodes.bit_length() - 1) * inter_us("tree", p, where, server, params)
    )
    # NCCL halves what a tree carries, a ring's wire 2 (n - 1) / n of the buffer: the same buffer in the same time.
    n = where.ranks
    return Choice("tree", protocol, channels, us, gbs * (n - 1) / n if n > 1 else gbs, corrected=True)


def _nvls(op: str, where: MembersByServer, server: ServerFacts, params: Params, settings: NcclSettings) -> list[Choice]:
    intra, channels = params.nvlink_us["nvls"][2], settings.nvls_channels or params.nvls_channels
    n = where.ranks
    if where.nodes == 1 and op in ("all_reduce", "all_gather", "reduce_scatter"):
        # A port carries (n+1)/n of an all-reduce's bytes through the switch, where a ring's wire carries 2(n-1)/n.
        gain = _multicast_gain(n, channels) if op == "all_reduce" else 1.0
        return [Choice("nvls", "simple", channels, intra, params.port_gbs * params.factor.nvls * gain)]
    if where.nodes > 1 and op == "all_reduce" and where.rails > 1:
        per = n / where.nodes
        inside = params.port_gbs * params.factor.nvls * _multicast_gain(per, channels)
        limit = params.limit.nvls_tree[_node_class(where.nodes)] * channels
        rails_gbs = _rails(where, server) * server.nic_gbps / 8 * params.factor.net_efficiency
        net = rails_gbs * (2 if where.nodes == 2 else 1)
        us = intra + 2 * int(log2(where.nodes)) * inter_us("nvls_tree", 2, where, server, params)
        gbs, corrected = min(inside, limit, net), params.factor.nvls_tree_corrected and not server.arm
        return [Choice("nvls_tree", "simple", channels, us, gbs, corrected)]
    return []


def tree_gbs_of_cards(where: MembersByServer, server: ServerFacts, params: Params) -> float:
    """The bytes per ns of an all-reduce that trees between servers can move: an inner node receives from two children,
    and sends to two; of two nodes each has one neighbour.
    """
    gbs = _rails(where, server) * server.nic_gbps / 8 * params.factor.net_efficiency
    return gbs if where.nodes == 2 else gbs / 2


def _multicast_gain(members: float, channels: int) -> float:
    """The bus bandwidth of an all-reduce through the switch, per bandwidth of a port. It carries (n+1)/n of the bytes;
    however many the members are, NCCL counts on all channels but one.
    """
    return (
        2 * (members - 1) / members * min(members / (members + 1), (channels - 1) / channels if channels > 1 else 1.0)
    )


def _pat(where: MembersByServer, server: ServerFacts, params: Params, channels: int) -> Choice:
    hop_us = inter_us("pat", 2, where, server, params) / 3.5
    us = params.base_us["pat"][2] + (where.nodes.bit_length() - 1) * hop_us + where.ranks * 2.8
    return Choice("pat", "simple", channels, us, _raw_gbs(where, server, params) * params.factor.pat)
