"""Explicit graphs: hosts, switches and cables given one by one, in TOML or as a networkx graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from netsim.errors import SpecError
from netsim.fields import SpecTable
from netsim.topology.links import LinkPath, LinkTable, read_gbps, read_latency_ns
from netsim.topology.topology import Topology

if TYPE_CHECKING:
    import networkx

MOST_ROUTES = 64
"""The most equally short routes that are kept per pair: the first in order of link ids."""


@dataclass(slots=True)
class GraphRouter:
    """All shortest routes by number of links; hosts do not forward."""

    hosts: Sequence[Hashable]
    out: Mapping[Hashable, Sequence[tuple[int, Hashable]]]
    _far: dict[Hashable, dict[Hashable, int]] = field(default_factory=dict)

    def routes(self, src: int, dst: int) -> Sequence[LinkPath]:
        start, goal = self.hosts[src], self.hosts[dst]
        distance = self._distances(goal)
        if start not in distance:
            return ()
        found: list[LinkPath] = []
        pending: list[tuple[Hashable, LinkPath]] = [(start, ())]
        while pending and len(found) < MOST_ROUTES:
            here, path = pending.pop()
            if here == goal:
                found.append(path)
                continue
            closer = [(link, there) for link, there in self.out[here] if distance.get(there, -1) == distance[here] - 1]
            pending += [(there, (*path, link)) for link, there in reversed(closer)]
        return found

    def _distances(self, goal: Hashable) -> dict[Hashable, int]:
        """The number of links from every vertex to ``goal``, over switches only."""
        if goal not in self._far:
            into: dict[Hashable, list[Hashable]] = {}
            for vertex, links in self.out.items():
                for _, there in links:
                    into.setdefault(there, []).append(vertex)
            hosts, distance, queue = set(self.hosts), {goal: 0}, deque([goal])
            while queue:
                here = queue.popleft()
                if here in hosts and here != goal:
                    continue
                for before in into.get(here, ()):
                    if before not in distance:
                        distance[before] = distance[here] + 1
                        queue.append(before)
            self._far[goal] = distance
        return self._far[goal]


def build(hosts: Sequence[Hashable], cables: Iterable[tuple[Hashable, Hashable, float, int]]) -> Topology:
    """A topology of directed cables (from, to, Gb/s, latency in ns); endpoints are ``hosts`` in order."""
    links = LinkTable()
    out: dict[Hashable, list[tuple[int, Hashable]]] = {host: [] for host in hosts}
    if len(out) != len(hosts):
        raise SpecError("a host is listed twice")
    copies: dict[tuple[Hashable, Hashable], int] = {}
    for a, b, gbps, latency_ns in cables:
        if not isinstance(gbps, int | float):
            raise SpecError(f"{a!r} - {b!r}: gbps: expected a number, not {gbps!r}")
        copies[a, b] = copies.get((a, b), 0) + 1
        name = f"{a}->{b}" if copies[a, b] == 1 else f"{a}->{b}#{copies[a, b]}"
        out.setdefault(a, []).append((links.add(name, gbps, latency_ns), b))
        out.setdefault(b, [])
    return Topology(links.links, [str(host) for host in hosts], GraphRouter(tuple(hosts), out), kind="graph")


def from_table(table: SpecTable) -> Topology:
    """The topology in ``[network.graph]``: ``hosts`` and an array of tables ``link`` (from, to, gbps, latency_ns,
    both).
    """
    hosts, switches = table.texts("hosts"), table.texts("switches", [])
    if not hosts:
        raise table.error("hosts", "expected at least one name")
    if both := sorted({*hosts} & {*switches}):
        raise table.error("switches", f"{both[0]!r} is a host, too")
    known = {*hosts, *switches}
    cables = []
    for entry in table.tables("link"):
        a, b = entry.text("from"), entry.text("to")
        for key, end in (("from", a), ("to", b)):
            if end not in known:
                raise entry.error(key, f"unknown host or switch {end!r}")
        gbps, latency_ns = read_gbps(entry, "gbps"), read_latency_ns(entry, "latency_ns")
        cables.append((a, b, gbps, latency_ns))
        if entry.flag("both", True):
            cables.append((b, a, gbps, latency_ns))
        entry.end()
    table.end()
    return build(hosts, cables)


def from_networkx(
    graph: networkx.Graph[Any],
    hosts: Sequence[Hashable] | None = None,
    capacity: str = "gbps",
    latency: str = "latency_ns",
) -> Topology:
    """A topology from a networkx graph (undirected: cables both ways; multigraphs: parallel cables).

    Edges carry ``capacity`` in Gb/s (required) and ``latency`` in ns (default 0). Endpoints are ``hosts``, else the
    vertices with a true ``host`` attribute, else those with one neighbour. SpecError for what is missing.
    """
    if hosts is None:
        hosts = [v for v, data in graph.nodes(data=True) if data.get("host")]
        hosts = hosts or [v for v in graph.nodes if len(set(graph.adj[v])) == 1]
    unknown = [host for host in hosts if host not in graph]
    if unknown or not hosts:
        raise SpecError(f"not a vertex of the graph: {unknown[0]!r}" if unknown else "the graph has no hosts")
    cables = []
    for a, b, data in graph.edges(data=True):
        if capacity not in data:
            raise SpecError(f"edge {a!r} - {b!r}: no {capacity!r}")
        try:
            gbps, latency_ns = float(data[capacity]), int(data.get(latency, 0))
        except (TypeError, ValueError, OverflowError):
            found = f"{data[capacity]!r} and {data.get(latency, 0)!r}"
            raise SpecError(
                f"edge {a!r} - {b!r}: expected numbers for {capacity} and {latency}, found {found}"
            ) from None
        cables.append((a, b, gbps, latency_ns))
        if not graph.is_directed():
            cables.append((b, a, gbps, latency_ns))
    return build(hosts, cables)
