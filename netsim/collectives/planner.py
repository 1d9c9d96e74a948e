"""A collective as groups of flows plus a latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from netsim.collectives import hops, tuner
from netsim.collectives.params import Params
from netsim.errors import FlowError
from netsim.simulation.groups import Group
from netsim.topology import Topology

OPERATIONS = (*tuner.REDUCTIONS, "all_to_all", "send_recv", "gather", "scatter")


@dataclass(frozen=True, slots=True)
class Plan:
    """How a collective runs: it is done ``latency_ns`` after its start plus the time its groups need, all begun
    together.
    """

    algorithm: str
    protocol: str
    channels: int
    latency_ns: int
    groups: tuple[Group, ...]


def plan(
    op: str,
    nbytes: int,
    members: Sequence[int],
    topology: Topology,
    params: Params,
    root: int = 0,
    ranks: int | None = None,
    both_ways: bool = False,
) -> Plan:
    """The plan of ``op`` for ``members`` (endpoint ids in rank order; send_recv: source, destination).

    ``nbytes``: all_reduce, broadcast, reduce: the buffer; all_gather, gather: the gathered output; reduce_scatter,
    scatter: the whole input; all_to_all: one rank's whole input; send_recv: the message. ``root`` is a rank.
    FlowError for what cannot be.
    """
    if op not in OPERATIONS:
        raise FlowError(f"unknown operation {op!r}; known: {', '.join(OPERATIONS)}")
    if nbytes < 0:
        raise FlowError(f"{op}: negative bytes ({nbytes})")
    if not members or len(set(members)) != len(members):
        raise FlowError(f"{op}: members must be given and differ: {list(members)[:8]}")
    if op == "send_recv" and len(members) != 2:
        raise FlowError(f"send_recv: two members expected, {len(members)} given")
    if not 0 <= root < len(members):
        raise FlowError(f"{op}: root {root} is not one of {len(members)} ranks")
    if ranks is not None and ranks < len(members):
        raise FlowError(f"{op}: {len(members)} members of a communicator of {ranks}")
    call = _Call(op, nbytes, tuple(members), root, ranks or len(members), both_ways or op == "all_to_all")
    return _plan(call, topology, params)


@dataclass(frozen=True, slots=True)
class _Call:
    """An operation as ``plan`` takes it, checked. ``ranks``: size of the communicator."""

    op: str
    nbytes: int
    members: tuple[int, ...]
    root: int
    ranks: int
    both_ways: bool


@lru_cache(maxsize=4096)
def _plan(call: _Call, topology: Topology, params: Params) -> Plan:
    if len(call.members) == 1:
        return Plan("local", "simple", 1, ceil(params.base_us["ring"][0] * 1000), ())
    if call.op in tuner.REDUCTIONS:
        return _reduction(call, topology, params)
    return _point_to_point(call, topology, params)


def _group(nbytes: float, links: tuple[tuple[int, int], ...], gbs: float) -> tuple[Group, ...]:
    return (Group(ceil(nbytes), links, gbs * 8),) if nbytes > 0 else ()


@lru_cache(maxsize=1024)
def _links(shape: str, where: hops.MembersByServer, topology: Topology, root: int) -> tuple[tuple[int, int], ...]:
    """Weighted links of an algorithm's hops: they do not depend on the bytes, and the same tuple serves all sizes."""
    match shape:
        case "ring":
            made = hops.rings(where)
        case "servers":
            made = [hop for server in where.servers for hop in hops.rings(hops.MembersByServer((server,)))]
        case "tree":
            made = hops.trees(where)
        case "heads":
            made = hops.heads(where)
        case "broadcast":
            made = hops.ring_open(where, root)
        case _:
            made = [(dst, src) for src, dst in hops.ring_open(where, root)]
    return hops.weights(made, topology)


def _reduction(call: _Call, topology: Topology, params: Params) -> Plan:
    op, nbytes, root = call.op, call.nbytes, call.members[call.root]
    where = hops.by_server(call.members, topology)
    choice = tuner.choose(op, nbytes, where, topology.server, params)
    choice = tuner.measured(choice, op, nbytes, where.ranks, params)
    carried = tuner.wire_bytes(op, nbytes, where.ranks)
    rings = where.rails if where.nodes > 1 else 1
    latency_ns = round(choice.latency_us * 1000)
    if choice.algorithm == "tree":
        # NCCL's tree bandwidth counts like the ring's; a tree hop carries half the buffer of its rail.
        per_hop = nbytes / (2 * rings)
        cap = choice.bus_gbs * per_hop / carried if carried else 0.0
        groups = _group(per_hop, _links("tree", where, topology, root), cap)
    elif choice.algorithm in ("nvls", "nvls_tree"):
        groups = _nvls_groups(op, nbytes, where, topology, choice)
    else:
        shape = op if op in ("broadcast", "reduce") else "ring"
        groups = _group(carried / rings, _links(shape, where, topology, root), choice.bus_gbs / rings)
    return Plan(choice.algorithm, choice.protocol, choice.channels, latency_ns, groups)


def _nvls_groups(
    op: str, nbytes: int, where: hops.MembersByServer, topology: Topology, choice: tuner.Choice
) -> tuple[Group, ...]:
    if not nbytes:
        return ()
    groups: list[Group] = []
    seconds_per_byte = tuner.wire_bytes(op, nbytes, where.ranks) / choice.bus_gbs
    # Servers work in step; those with as many members move as much, at one rate.
    for n in sorted({len(server) for server in where.servers} - {1}):
        alike = hops.MembersByServer(tuple(server for server in where.servers if len(server) == n))
        through = nbytes * (n + 1) / n if op == "all_reduce" else float(nbytes)
        links = _links("servers", alike, topology, alike.servers[0][0])
        groups += _group(through, links, through / seconds_per_byte)
    if where.nodes > 1:
        per_hop = nbytes / (2 * where.rails)
        links = _links("heads", where, topology, where.servers[0][0])
        groups += _group(per_hop, links, per_hop / seconds_per_byte)
    return tuple(groups)


def _point_to_point(call: _Call, topology: Topology, params: Params) -> Plan:
    each = call.nbytes if call.op == "send_recv" else call.nbytes / len(call.members)
    near, far = _moves(call.op, call.members, topology, call.members[call.root])
    server, simple = topology.server, params.simple
    inside = params.nvlink_us if server.kind == "nvswitch" else params.pci_us
    hop_us = params.net_us["ring"][2] if far else inside["ring"][2]
    ramp = "exchange" if call.both_ways else "point_to_point"
    latency_us = params.base_us["ring"][2] + hop_us + (simple.ramp_us[ramp] if call.nbytes else 0.0)
    channels = _channels(each, call.ranks, params)
    inside_gbs = params.gpu_gbs if server.kind == "nvswitch" else server.gpu_gbps / 8
    inside_gbs *= simple.both_ways_efficiency if call.both_ways else simple.wire_efficiency
    channel_gbs = params.p2p.both_ways_channel_gbs if call.both_ways else params.p2p.channel_gbs
    groups: list[Group] = []
    for part, gbs in ((near, inside_gbs), (far, server.nic_gbps / 8 * params.factor.net_efficiency)):
        if part:
            groups += _group(each, part.links, min(gbs / part.busiest, channels * channel_gbs))
    return Plan("direct", "simple", channels, round(latency_us * 1000), tuple(groups))


@dataclass(frozen=True, slots=True)
class _Part:
    """Transfers inside servers, or between them: their links, and how many share the busiest end."""

    links: tuple[tuple[int, int], ...]
    busiest: int


@lru_cache(maxsize=1024)
def _moves(op: str, members: tuple[int, ...], topology: Topology, root: int) -> tuple[_Part | None, _Part | None]:
    """Who sends to whom, inside servers and between them."""
    if op == "send_recv":
        moves = [(members[0], members[1])]
    elif op == "all_to_all":
        moves = hops.pairs(members)
    else:
        moves = [(m, root) if op == "gather" else (root, m) for m in members if m != root]
    near = [hop for hop in moves if topology.server_of(hop[0]) == topology.server_of(hop[1])]
    far = [hop for hop in moves if topology.server_of(hop[0]) != topology.server_of(hop[1])]
    first, second = (_Part(hops.weights(part, topology), _busiest_end(part)) if part else None for part in (near, far))
    return first, second


def _channels(nbytes: float, ranks: int, params: Params) -> int:
    """Channels of one transfer: the peers' equal share, doubled while a channel's part is larger than NCCL wants it."""
    channels = max(1, params.p2p.channels // ranks)
    while nbytes / channels > params.p2p.part_mb * 1e6 and channels <= params.p2p.channels // 2:
        channels *= 2
    return channels


def _busiest_end(moves: Sequence[hops.Hop]) -> int:
    """The most transfers that begin or end at one member: they share what its copy engine or channels can move."""
    sends: dict[int, int] = {}
    receives: dict[int, int] = {}
    for src, dst in moves:
        sends[src] = sends.get(src, 0) + 1
        receives[dst] = receives.get(dst, 0) + 1
    return max(*sends.values(), *receives.values())
