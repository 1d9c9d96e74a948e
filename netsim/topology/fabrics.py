"""Builds the networks between servers: switches, and the routes from one NIC to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from netsim.fields import SpecTable
from netsim.topology.links import MOST_LINKS, LinkPath, LinkTable, read_gbps, read_latency_ns

KINDS = ("switch", "leaf-spine", "rail", "fat-tree", "dragonfly")


class Fabric(Protocol):
    """A built fabric. A NIC is named by (server, nic)."""

    def between(self, a: tuple[int, int], b: tuple[int, int]) -> Sequence[LinkPath]:
        """All shortest routes from NIC a's switch to NIC b's switch, without the NICs' own ports."""
        ...


@dataclass(frozen=True, slots=True)
class Switch:
    """One switch that never limits: only the NICs' ports do."""

    def between(self, a: tuple[int, int], b: tuple[int, int]) -> Sequence[LinkPath]:
        return ((),)


@dataclass(frozen=True, slots=True)
class LeafSpine:
    """Leaves joined by spines. ``leaf_of`` maps a NIC to its leaf; with rails, each rail of a pod has its own leaf."""

    up: tuple[tuple[int, ...], ...]
    down: tuple[tuple[int, ...], ...]
    servers_per_pod: int
    rails: int

    def leaf_of(self, nic: tuple[int, int]) -> int:
        """The number of the leaf switch into which a NIC is plugged."""
        server, rail = nic
        return server // self.servers_per_pod * self.rails + rail % self.rails

    def between(self, a: tuple[int, int], b: tuple[int, int]) -> Sequence[LinkPath]:
        x, y = self.leaf_of(a), self.leaf_of(b)
        if x == y:
            return ((),)
        return tuple((up, down) for up, down in zip(self.up[x], self.down[y], strict=True))


@dataclass(frozen=True, slots=True)
class FatTree:
    """k-ary fat tree: k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 cores; k/2 NICs per edge switch."""

    half: int
    edge_up: dict[tuple[int, int], int]
    edge_down: dict[tuple[int, int], int]
    core_up: dict[tuple[int, int, int], int]
    core_down: dict[tuple[int, int, int], int]
    nics: int

    def between(self, a: tuple[int, int], b: tuple[int, int]) -> Sequence[LinkPath]:
        half = self.half
        x, y = ((s * self.nics + n) // half for s, n in (a, b))
        if x == y:
            return ((),)
        p, q = x // half, y // half
        if p == q:
            return tuple((self.edge_up[x, i], self.edge_down[y, i]) for i in range(half))
        return tuple(
            (self.edge_up[x, i], self.core_up[p, i, j], self.core_down[q, i, j], self.edge_down[y, i])
            for i in range(half)
            for j in range(half)
        )


@dataclass(frozen=True, slots=True)
class Dragonfly:
    """Groups of fully meshed routers, one global link between each pair of groups; minimal routes."""

    routers: int
    nics_per_router: int
    nics: int
    local: dict[tuple[int, int], int]
    wide: dict[tuple[int, int], int]
    gateway: dict[tuple[int, int], int]

    def between(self, a: tuple[int, int], b: tuple[int, int]) -> Sequence[LinkPath]:
        x, y = ((s * self.nics + n) // self.nics_per_router for s, n in (a, b))
        g, h = x // self.routers, y // self.routers
        if g == h:
            return (self._step(x, y),)
        return ((*self._step(x, self.gateway[g, h]), self.wide[g, h], *self._step(self.gateway[h, g], y)),)

    def _step(self, x: int, y: int) -> LinkPath:
        return () if x == y else (self.local[x, y],)


def build(kind: str, table: SpecTable, links: LinkTable, servers: int, nics: int, nic_gbps: float) -> Fabric:
    """The fabric in ``[network.fabric]``, of a kind in ``KINDS``, for ``servers`` servers of ``nics`` NICs."""
    latency_ns = read_latency_ns(table, "latency_ns")
    if kind == "switch":
        return Switch()
    if kind in ("leaf-spine", "rail"):
        return _leaf_spine(table, links, servers, nics, nic_gbps, latency_ns, kind == "rail")
    if kind == "fat-tree":
        return _fat_tree(table, links, servers, nics, nic_gbps, latency_ns)
    return _dragonfly(table, links, servers, nics, nic_gbps, latency_ns)


def _leaf_spine(
    table: SpecTable, links: LinkTable, servers: int, nics: int, nic_gbps: float, latency_ns: int, rail: bool
) -> Fabric:
    per_pod = table.integer("servers_per_leaf", 32 if rail else 4, least=1, most=MOST_LINKS)
    rails = nics if rail else 1
    downlinks = per_pod * (1 if rail else nics)
    over = table.number("oversubscription", 1.0, least=1e-3, most=1e3)
    spines = table.integer("spines", max(1, round(downlinks / over)), least=1, most=MOST_LINKS)
    gbps = read_gbps(table, "uplink_gbps", downlinks * nic_gbps / over / spines)
    leaves = -(-servers // per_pod) * rails
    if leaves == 1:
        return LeafSpine(((),), ((),), per_pod, rails)
    links.expect(2 * leaves * spines)
    up = tuple(tuple(links.add(f"leaf{a}:up{s}", gbps, latency_ns) for s in range(spines)) for a in range(leaves))
    down = tuple(tuple(links.add(f"leaf{a}:down{s}", gbps, latency_ns) for s in range(spines)) for a in range(leaves))
    return LeafSpine(up, down, per_pod, rails)


def _fat_tree(table: SpecTable, links: LinkTable, servers: int, nics: int, nic_gbps: float, latency_ns: int) -> Fabric:
    k = table.integer("k", 4, least=2, most=MOST_LINKS)
    if k % 2:
        raise table.error("k", f"{k} is odd")
    if servers * nics > k**3 // 4:
        raise table.error("k", f"a {k}-ary fat tree has {k**3 // 4} ports; {servers * nics} NICs need them")
    links.expect(k**3)
    half = k // 2
    gbps = nic_gbps / table.number("oversubscription", 1.0, least=1e-3, most=1e3)
    tree = FatTree(half, {}, {}, {}, {}, nics)
    for edge in range(k * half):
        for i in range(half):
            tree.edge_up[edge, i] = links.add(f"edge{edge}:up{i}", gbps, latency_ns)
            tree.edge_down[edge, i] = links.add(f"edge{edge}:down{i}", gbps, latency_ns)
    for pod in range(k):
        for i in range(half):
            for j in range(half):
                tree.core_up[pod, i, j] = links.add(f"agg{pod * half + i}:up{j}", gbps, latency_ns)
                tree.core_down[pod, i, j] = links.add(f"agg{pod * half + i}:down{j}", gbps, latency_ns)
    return tree


def _dragonfly(table: SpecTable, links: LinkTable, servers: int, nics: int, nic_gbps: float, latency_ns: int) -> Fabric:
    routers = table.integer("routers_per_group", 4, least=1, most=MOST_LINKS)
    per_router = table.integer("nics_per_router", 4, least=1, most=MOST_LINKS)
    needed = -(-servers * nics // (routers * per_router))
    groups = table.integer("groups", needed, least=1, most=MOST_LINKS)
    if groups < needed:
        raise table.error("groups", f"{servers * nics} NICs need {needed} groups, not {groups}")
    local_gbps = read_gbps(table, "local_gbps", nic_gbps)
    wide_gbps = read_gbps(table, "global_gbps", nic_gbps)
    wide_latency_ns = read_latency_ns(table, "global_latency_ns", latency_ns)
    links.expect(groups * routers * (routers - 1) + groups * (groups - 1))
    fly = Dragonfly(routers, per_router, nics, {}, {}, {})
    for g in range(groups):
        for a in range(routers):
            for b in range(routers):
                if a != b:
                    name = f"group{g}/router{a}:to{b}"
                    fly.local[g * routers + a, g * routers + b] = links.add(name, local_gbps, latency_ns)
        for h in range(groups):
            if g != h:
                # The classic palm-tree layout: consecutive groups hang on consecutive routers.
                fly.gateway[g, h] = g * routers + ((h - g) % groups - 1) % routers
                fly.wide[g, h] = links.add(f"group{g}:to{h}", wide_gbps, wide_latency_ns)
    return fly
