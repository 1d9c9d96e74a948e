"""A collective as groups of flows plus a latency."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, gcd

from netsim.collectives import hops, timing, transfers, tuner
from netsim.collectives.hops import Hop, MembersByServer
from netsim.collectives.params import OPERATIONS, Params
from netsim.collectives.settings import NcclSettings
from netsim.collectives.timing import Duration
from netsim.errors import FlowError
from netsim.simulation.groups import Group, Links, LinksLess
from netsim.topology import Topology
from netsim.units import MAX_BYTES, whole

NCCLS_OWN = NcclSettings()


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a collective: it is done ``latency_ns`` after its start plus the time its groups need, all begun
    together.
    """

    algorithm: str
    protocol: str
    channels: int
    latency_ns: int
    groups: tuple[Group, ...]


def slower(plan: Plan, factor: float) -> Plan:
    """The plan where everything takes ``factor`` times as long."""
    groups = tuple(
        replace(group, nbytes=ceil(group.nbytes * factor), latency_ns=round(group.latency_ns * factor))
        for group in plan.groups
    )
    return replace(plan, latency_ns=round(plan.latency_ns * factor), groups=groups)


def plan(
    op: str,
    nbytes: int,
    members: Sequence[int],
    topology: Topology,
    params: Params,
    root: int = 0,
    ranks: int | None = None,
    exchange: bool = False,
    settings: NcclSettings = NCCLS_OWN,
) -> Plan:
    """The plan of ``op`` for ``members`` (endpoint ids in rank order; send_recv: source, destination).

    ``nbytes``: all_reduce, broadcast, reduce: the buffer; all_gather, gather: the gathered output; reduce_scatter,
    scatter: the whole input; all_to_all: one rank's whole input; send_recv: the message. ``root`` is a rank.
    For send_recv, ``ranks`` is the size of the communicator, and ``exchange`` says that the kernel also transfers in
    the other direction. FlowError for what cannot be.
    """
    if op not in OPERATIONS:
        raise FlowError(f"unknown operation {op!r}; known: {', '.join(OPERATIONS)}")
    nbytes, root = whole(nbytes, "nbytes"), whole(root, "root")
    if not 0 <= nbytes < MAX_BYTES:
        raise FlowError(f"{op}: {nbytes} bytes are not in [0, 2**58)")
    try:
        members = tuple(members)
        different = len(set(members))
    except TypeError:
        raise FlowError(f"{op}: expected numbers of endpoints as members, not {members!r}") from None
    if not members or different != len(members):
        raise FlowError(f"{op}: members must be given and differ: {list(members)[:8]}")
    if op == "send_recv" and len(members) != 2:
        raise FlowError(f"send_recv: two members expected, {len(members)} given")
    if not 0 <= root < len(members):
        raise FlowError(f"{op}: root {root} is not one of {len(members)} ranks")
    if ranks is not None and ranks < len(members):
        raise FlowError(f"{op}: {len(members)} members of a communicator of {ranks}")
    call = transfers.Call(op, nbytes, members, root, ranks or len(members), exchange or op == "all_to_all")
    return _plan(call, topology, params, settings)


@lru_cache(maxsize=4096)
def _plan(call: transfers.Call, topology: Topology, params: Params, settings: NcclSettings) -> Plan:
    where = hops.by_server(call.members, topology)
    if len(call.members) == 1:
        return Plan("local", "simple", 1, ceil(params.base_us["ring"][0] * 1000), ())
    if call.op in tuner.REDUCTIONS:
        return _reduction(call, where, topology, params, settings)
    groups: tuple[Group, ...] = ()
    latency_us, channels, protocol = 0.0, 0, ""
    for part in transfers.parts(call, topology, params, settings):
        groups += _as_one(part.duration, part.links)
        latency_us = max(latency_us, part.duration.latency_us)
        channels, protocol = part.division.channels, part.division.protocol
    return Plan("direct", protocol, channels, round(latency_us * 1000), groups)


def _group(duration: Duration, links: Links, share: float = 1.0) -> tuple[Group, ...]:
    """The bytes on the wire, at the rate that they have alone; ``share`` of both for one of several equal rings."""
    if duration.wire_nbytes <= 0:
        return ()
    return (Group(ceil(duration.wire_nbytes * share), links, duration.gbs * share * 8),)


def _as_one(duration: Duration, links: tuple[tuple[int, int], ...]) -> tuple[Group, ...]:
    """The group of the transfers of one kernel. Beside another kernel they get as much of a port as that one does,
    whatever the number of their peers (measured: laboratory/notes/four-gpus-h100.md).
    """
    together = gcd(*(weight for _, weight in links))
    whole_links = tuple((link, weight // together) for link, weight in links)
    return _group(Duration(duration.latency_us, duration.moving_us, together * duration.wire_nbytes), whole_links)


@lru_cache(maxsize=1024)
def _links(shape: str, where: MembersByServer, topology: Topology) -> tuple[tuple[int, int], ...]:
    """The weighted links of an algorithm's hops: they do not depend on the bytes, and the same tuple serves all
    sizes.
    """
    made: Iterable[Hop]
    match shape:
        case "ring":
            made = hops.rings(where)
        case "servers":
            made = [hop for server in where.servers for hop in hops.rings(MembersByServer((server,)))]
        case "tree":
            made = hops.trees(where)
        case "heads":
            made = hops.heads(where)
        case _:
            made = _back(hops.rings(where))
    return hops.weights(made, topology)


def _opened(op: str, where: MembersByServer, topology: Topology, root: int) -> LinksLess:
    """The links of a pipeline from the root along each rail's ring (broadcast), or along it back to the root (reduce).

    With another root the rings are the same, opened elsewhere: all roots share them.
    """
    open_hops = hops.into(where)[root]
    if op == "broadcast":
        return LinksLess(_links("ring", where, topology), hops.weights(open_hops, topology))
    return LinksLess(_links("ring back", where, topology), hops.weights(_back(open_hops), topology))


def _back(made: Iterable[Hop]) -> list[Hop]:
    return [(dst, src) for src, dst in made]


def _reduction(
    call: transfers.Call, where: MembersByServer, topology: Topology, params: Params, settings: NcclSettings
) -> Plan:
    op, nbytes, server = call.op, call.nbytes, topology.server
    choice = tuner.choose(op, nbytes, where, server, params, settings)
    rings, path_us = where.rails if where.nodes > 1 else 1, hops.path_us(where, topology)
    if choice.algorithm == "tree":
        duration = timing.tree(nbytes, where, server, choice, params, path_us)
        # A tree hop carries half the buffer of its rail.
        share = nbytes / (2 * rings) / duration.wire_nbytes if duration.wire_nbytes else 0.0
        groups = _group(duration, _links("tree", where, topology), share)
    elif choice.algorithm in ("nvls", "nvls_tree"):
        duration = timing.multicast(op, nbytes, where, server, choice, params, settings, path_us)
        groups = _multicast_groups(op, nbytes, where, topology, duration)
    else:
        if choice.algorithm == "pat":
            duration = timing.logarithmic(op, nbytes, where, choice, params, path_us)
        else:
            duration = timing.ring(op, nbytes, where, server, choice, params, settings, path_us)
        if op in ("broadcast", "reduce"):
            links: Links = _opened(op, where, topology, call.members[call.root])
        else:
            links = _links("ring", where, topology)
        groups = _group(duration, links, 1 / rings)
    return Plan(choice.algorithm, choice.protocol, choice.channels, round(duration.latency_us * 1000), groups)


def _multicast_groups(
    op: str, nbytes: int, where: MembersByServer, topology: Topology, duration: Duration
) -> tuple[Group, ...]:
    if not nbytes:
        return ()
    groups: list[Group] = []
    # Servers work in step; those with as many members move as much, at one rate.
    for n in sorted({len(server) for server in where.servers} - {1}):
        alike = MembersByServer(tuple(server for server in where.servers if len(server) == n))
        through = nbytes * (n + 1) / n if op == "all_reduce" else float(nbytes)
        links = _links("servers", alike, topology)
        groups += _group(Duration(0.0, duration.moving_us, through), links)
    if where.nodes > 1:
        links = _links("heads", where, topology)
        groups += _group(Duration(0.0, duration.moving_us, nbytes / (2 * where.rails)), links)
    return tuple(groups)
