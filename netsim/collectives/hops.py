"""Finds which links an algorithm uses, and how often: collectives as weighted hops over a topology's routes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from netsim.topology import Topology

Hop = tuple[int, int]
"""Source and destination endpoint."""


@dataclass(frozen=True, slots=True)
class MembersByServer:
    """Members of a communicator by server, in rank order; servers in the order of their first member."""

    servers: tuple[tuple[int, ...], ...]
    # These are asked for at each choice of an algorithm: of thousands of servers they are counted once.
    ranks: int = field(init=False, repr=False, compare=False)
    """Number of members."""
    rails: int = field(init=False, repr=False, compare=False)
    """Members per server of the least populated one: this many rings can use different NICs. 0 without servers."""

    def __post_init__(self) -> None:
        counts = [*map(len, self.servers)]
        object.__setattr__(self, "ranks", sum(counts))
        object.__setattr__(self, "rails", min(counts, default=0))

    @property
    def nodes(self) -> int:
        """Number of servers."""
        return len(self.servers)


@lru_cache(maxsize=1024)
def by_server(members: tuple[int, ...], topology: Topology) -> MembersByServer:
    """Group members by server. Raises TopologyError for one that the topology does not have."""
    found: dict[int, list[int]] = {}
    for member in members:
        found.setdefault(topology.server_of(member), []).append(member)
    return MembersByServer(tuple(tuple(s) for s in found.values()))


def weights(hops: Iterable[Hop], topology: Topology) -> tuple[tuple[int, int], ...]:
    """The number of hops that cross each link. The hops are between endpoints of the topology; a Counter says how many
    there are of each.
    """
    counted = hops if isinstance(hops, Counter) else Counter(hops)
    crossing: dict[int, int] = {}
    for (src, dst), times in counted.items():
        for link in topology.route_once(src, dst):
            crossing[link] = crossing.get(link, 0) + times
    return tuple(sorted(crossing.items()))


def chain(server: Sequence[int], first: int) -> list[int]:
    """A server's members in ring order, beginning with the one that faces rail ``first``."""
    first %= len(server)
    return [*server[first:], *server[:first]]


def rings(where: MembersByServer) -> list[Hop]:
    """Hops of one ring per rail: through each server's members, then on to the next server's member of that rail."""
    hops: list[Hop] = []
    for rail in range(where.rails if where.nodes > 1 else 1):
        order = [member for server in where.servers for member in chain(server, rail)]
        hops += zip(order, [*order[1:], order[0]], strict=True)
    return hops


@lru_cache(maxsize=64)
def into(where: MembersByServer) -> dict[int, list[Hop]]:
    """The hops of ``rings`` that end at each member. A pipeline that begins at this member does not make them."""
    found: dict[int, list[Hop]] = {}
    for hop in rings(where):
        found.setdefault(hop[1], []).append(hop)
    return found


def binary_tree(nodes: int) -> list[tuple[int, int]]:
    """(child, parent) edges of a binary tree over node indices in which odd nodes are leaves; node 0 has one child.

    The parent of a node is found by clearing its lowest set bit and setting the next one (if that stays in range).
    """
    edges = []
    for node in range(1, nodes):
        low = node & -node
        up = (node ^ low) | (low << 1)
        edges.append((node, up if up < nodes else node ^ low))
    return edges


def double_tree(nodes: int) -> list[list[tuple[int, int]]]:
    """Two trees in which a leaf of one is an inner node of the other: the second is shifted, or mirrored for even
    counts.
    """
    first = binary_tree(nodes)
    if nodes % 2:
        second = [((c + 1) % nodes, (p + 1) % nodes) for c, p in first]
    else:
        second = [(nodes - 1 - c, nodes - 1 - p) for c, p in first]
    return [first, second]


def trees(where: MembersByServer, both_ways: bool = True) -> Counter[Hop]:
    """Hops of a double binary tree per rail: a chain inside each server, tree edges between the chains' heads."""
    rails = range(where.rails if where.nodes > 1 else 1)
    up: Counter[Hop] = Counter()
    for server in where.servers:
        for (src, dst), times in _of_chains(len(server), rails).items():
            up[server[src], server[dst]] = 2 * times  # each of the two trees has the chains
    for rail in rails:
        heads = [server[rail % len(server)] for server in where.servers]
        for edges in double_tree(where.nodes):
            up.update((heads[child], heads[parent]) for child, parent in edges)
    if both_ways:
        for (src, dst), times in [*up.items()]:
            up[dst, src] += times
    return up


@lru_cache(maxsize=64)
def _of_chains(members: int, rails: range) -> Counter[Hop]:
    """The hops from each member of a server's chains to the one before it, by the members' places."""
    chains = (chain(range(members), rail) for rail in rails)
    return Counter(itertools.chain.from_iterable(zip(one[1:], one[:-1], strict=True) for one in chains))


def heads(where: MembersByServer) -> list[Hop]:
    """Hops between servers of NVLSTree: double trees between members of the same rail, both ways."""
    hops: list[Hop] = []
    for rail in range(where.rails):
        for edges in double_tree(where.nodes):
            for child, parent in edges:
                a, b = where.servers[child][rail], where.servers[parent][rail]
                hops += [(a, b), (b, a)]
    return hops


def pairs(members: Sequence[int]) -> list[Hop]:
    """The hops from every member to every other one."""
    return [(a, b) for a in members for b in members if a != b]


@lru_cache(maxsize=1024)
def path_us(where: MembersByServer, topology: Topology) -> float:
    """The mean latency in us of the way from a server to the next one of a ring: cards and switches, without what NCCL
    adds.
    """
    if where.nodes == 1:
        return 0.0
    heads = [server[0] for server in where.servers]
    ways = [topology.route(a, b) for a, b in zip(heads, [*heads[1:], heads[0]], strict=True)]
    return sum(map(topology.latency_ns, ways)) / len(ways) / 1000


def between(src: int, dst: int, topology: Topology) -> tuple[tuple[int, int], ...]:
    """The links of a message."""
    return weights([(src, dst)], topology)
