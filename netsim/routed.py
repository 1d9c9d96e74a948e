"""Flows that find their way: routes around links that are down, and starts that follow a path's latency.

A link's state is a fact with a time. The way a flow takes is a function of these facts alone: at its start it is the
ECMP choice among the routes whose links are all up; when a link of it goes down, the choice among those then up; with
none up it stays and stalls. So the answers do not depend on whether a failure or the flow was told first.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import Any

from netsim import core
from netsim.errors import FlowError, TopologyError
from netsim.groups import Changes, Moved
from netsim.network import Choice, FlowId, Links, Network
from netsim.topology import Path_, Topology, ecmp
from netsim.units import ticks_from_ns


@dataclass(slots=True)
class Steps:
    """A quantity that changes at given times; ``first`` before all of them."""

    first: float
    at_ns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def set(self, at_ns: int, value: float) -> None:
        """From ``at_ns`` until the next change."""
        i = bisect_right(self.at_ns, at_ns)
        if i and self.at_ns[i - 1] == at_ns:
            self.values[i - 1] = value
        else:
            self.at_ns.insert(i, at_ns)
            self.values.insert(i, value)

    def get(self, at_ns: int) -> float:
        """The value at an instant."""
        i = bisect_right(self.at_ns, at_ns)
        return self.values[i - 1] if i else self.first


@dataclass(frozen=True, slots=True)
class Way:
    """What follows for one flow: when its first byte leaves, and which path is in force from when on."""

    start_ns: int
    paths: tuple[tuple[int, Path_], ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """A flow as it was sent, and the way it has."""

    src: int
    dst: int
    nbytes: int
    start_ns: int
    key: Any
    way: Way


class RoutedNetwork(Network):
    """A network whose links fail, recover and change, and whose ``send`` routes around failures."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        self._gbps: dict[int, Steps] = {}
        self._latency_at: dict[int, Steps] = {}
        self._sent: dict[FlowId, Sent] = {}

    def send(self, src: int, dst: int, nbytes: int, start_ns: int, key: Any) -> Changes:
        """A plain flow between two endpoints along the route of the moment. Raises like ``add``."""
        if nbytes < 0:
            raise FlowError(f"flow {key!r}: negative bytes ({nbytes})")
        way = self.way(src, dst, start_ns)
        self._check_start(way.start_ns, start_ns)
        self._check_key(key)
        hops, starts = encode_paths(way.paths)
        # A flow without bytes is done as it starts: it has no use for other paths, and the core no turns for it.
        starts = starts if nbytes and len(starts) > 1 else []
        flow = self._core.add(ticks_from_ns(way.start_ns), nbytes, None, hops, starts)
        self._name(flow, key, way.start_ns, *links_of(way.paths))
        changes = self._changes(flow)
        self._sent[changes.flow] = Sent(src, dst, nbytes, start_ns, key, way)
        return changes

    def way(self, src: int, dst: int, start_ns: int) -> Way:
        """The paths of a flow that starts at ``start_ns``, given what is known of the links."""
        routes = self.topology.routes(src, dst)
        here = self._choose(src, dst, routes, start_ns) or self.topology.route(src, dst)
        latency_ns = sum(self._latency_of(link, start_ns) for link in here)
        paths = [(start_ns, here)]
        links = {link for route in routes for link in route}
        turns = {at for link in links if link in self._gbps for at in self._gbps[link].at_ns if at > start_ns}
        for at_ns in sorted(turns):
            if not self._up(here, at_ns):
                there = self._choose(src, dst, routes, at_ns)
                if there is not None:
                    here = there
                    paths.append((at_ns, here))
        return Way(start_ns + latency_ns, tuple(paths))

    def set_capacity(self, link: int, at_ns: int, gbps: float) -> Changes:
        """Like ``Network.set_capacity``; flows sent over the link reroute when it goes down (0)."""
        changes = super().set_capacity(link, at_ns, gbps)
        self._gbps.setdefault(link, Steps(self.topology.links[link].gbps)).set(at_ns, gbps)
        return self._follow(link, at_ns, [changes])

    def set_latency(self, link: int, at_ns: int, latency_ns: int) -> Changes:
        """Flows that are sent over the link from ``at_ns`` on meet this latency."""
        if not 0 <= link < len(self.topology.links):
            raise TopologyError(f"unknown link {link}")
        if latency_ns < 0:
            raise FlowError(f"link {self.topology.links[link].name}: latency {latency_ns} ns is negative")
        self._check_start(at_ns, at_ns)
        self._latency_at.setdefault(link, Steps(self.topology.links[link].latency_ns)).set(at_ns, latency_ns)
        return self._follow(link, at_ns, [])

    def retime(self, flow: FlowId, start_ns: int) -> Changes:
        """The flow starts at another time; one that was sent finds its way anew."""
        sent = self._sent.get(flow)
        if sent is None:
            return super().retime(flow, start_ns)
        self._check_movable(flow)
        way = self.way(sent.src, sent.dst, start_ns)
        self._check_start(way.start_ns, start_ns)
        moved = merge(self._change(flow, replace(sent, start_ns=start_ns, way=way)), self._keys)
        return Changes(flow, moved)

    def choices(self, flow: FlowId) -> tuple[Choice, ...]:
        """The routes that were chosen for the flow up to the present, while it lasted."""
        sent = self._sent.get(flow)
        if sent is None:
            return super().choices(flow)
        routes = self.topology.routes(sent.src, sent.dst)
        done_ns, loads = self.completion_ns(flow), self._loads_of(flow)
        return tuple(
            Choice(
                at_ns,
                routes.index(path),
                len(routes),
                tuple(self.topology.links[link].name for link in path),
                loads.get(at_ns, ()),
            )
            for at_ns, path in sent.way.paths
            if at_ns == sent.start_ns or done_ns is None or at_ns < done_ns
            if at_ns <= self.now_ns
        )

    def _loads_of(self, flow: FlowId) -> dict[int, tuple[float | None, ...]]:
        return {}

    def _follow(self, link: int, at_ns: int, changes: list[Changes]) -> Changes:
        """A fact about the link from ``at_ns`` on has changed: the flows that may use it find their way anew."""
        for flow, sent in list(self._sent.items()):
            if any(link in route for route in self.topology.routes(sent.src, sent.dst)):
                changes += self._change(flow, replace(sent, way=self.way(sent.src, sent.dst, sent.start_ns)))
        return Changes(-1, merge(changes, self._keys))

    def _change(self, flow: FlowId, sent: Sent) -> list[Changes]:
        """Tell the core what differs from the way the flow had."""
        old, new = self._sent[flow].way, sent.way
        changes = []
        if old.paths != new.paths:
            same = 0
            while same < min(len(old.paths), len(new.paths)) and old.paths[same] == new.paths[same]:
                same += 1
            from_ns = min(at_ns for at_ns, _ in (*old.paths[same:], *new.paths[same:]))
            later = new.paths[same:]
            if not later or later[0][0] > from_ns:
                later = ((from_ns, new.paths[same - 1][1] if same else new.paths[0][1]), *later)
            self._core.redirect(flow, *encode_paths(later))
            self._links[flow] += links_of(later)
            changes.append(self._changes(flow))
        if old.start_ns != new.start_ns:
            self._core.retime(flow, ticks_from_ns(new.start_ns))
            self._starts[flow] = new.start_ns
            changes.append(self._changes(flow))
        self._sent[flow] = sent
        return changes

    def _forget(self, flow: FlowId) -> None:
        super()._forget(flow)
        self._sent.pop(flow, None)

    def _choose(self, src: int, dst: int, routes: tuple[Path_, ...], at_ns: int) -> Path_ | None:
        up = [route for route in routes if self._up(route, at_ns)]
        return up[ecmp(src, dst, len(up))] if up else None

    def _up(self, route: Path_, at_ns: int) -> bool:
        return all(link not in self._gbps or self._gbps[link].get(at_ns) > 0 for link in route)

    def _latency_of(self, link: int, at_ns: int) -> int:
        steps = self._latency_at.get(link)
        return self.topology.links[link].latency_ns if steps is None else int(steps.get(at_ns))


def encode_paths(paths: tuple[tuple[int, Path_], ...]) -> tuple[core.Hops, list[int]]:
    """Paths and the ticks from which they are in force, as the core takes them."""
    parts = [core.encode([(link, 1) for link in path], i) for i, (_, path) in enumerate(paths)]
    return core.join(parts), [ticks_from_ns(at_ns) for at_ns, _ in paths]


def links_of(paths: tuple[tuple[int, Path_], ...]) -> list[Links]:
    """The links of each path, each of weight 1."""
    return [tuple((link, 1) for link in path) for _, path in paths]


def merge(parts: list[Changes], keys: dict[FlowId, Any]) -> tuple[Moved, ...]:
    """Several changes, one after the other, as one."""
    first: dict[FlowId, int | None] = {}
    last: dict[FlowId, int | None] = {}
    for part in parts:
        for moved in part.moved:
            first.setdefault(moved.flow, moved.before_ns)
            last[moved.flow] = moved.after_ns
    changed = [Moved(flow, first[flow], last[flow]) for flow in first if first[flow] != last[flow]]
    return tuple(sorted(changed, key=lambda m: keys[m.flow]))
