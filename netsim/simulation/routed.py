"""Flows that are routed: around links that are down, and delayed by the latency of their path.

A link's state is a fact with a time. The paths of a flow are a function of these facts alone: at its start the flow
takes the ECMP choice among the routes whose links are all up; when a link of its route goes down, it takes the choice
among those then up; with none up it stays and stalls. So the answers do not depend on whether a failure or the flow
was told first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from netsim.errors import FlowError
from netsim.native import core
from netsim.simulation.arguments import check_nbytes
from netsim.simulation.changing import ChangingValue
from netsim.simulation.groups import Changes, Links, Moved
from netsim.simulation.network import Choice, FlowId, Network
from netsim.topology import LinkPath, Topology, ecmp
from netsim.units import MAX_LATENCY_NS, ticks_from_ns, whole


class PathFrom(NamedTuple):
    """The path that a flow takes from an instant on."""

    at_ns: int
    links: LinkPath


@dataclass(frozen=True, slots=True)
class FlowPaths:
    """The instant at which a flow's first byte leaves, and the paths that it takes one after the other."""

    first_byte_ns: int
    paths: tuple[PathFrom, ...]


@dataclass(frozen=True, slots=True)
class SentFlow:
    """A flow as it was sent, and the paths it takes."""

    src: int
    dst: int
    nbytes: int
    start_ns: int
    key: Any
    taken: FlowPaths


class RoutedNetwork(Network):
    """A network whose links fail, recover and change, and whose ``send`` routes around failures."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        self._latency_at: dict[int, ChangingValue] = {}
        self._sent: dict[FlowId, SentFlow] = {}

    def send(self, src: int, dst: int, nbytes: int, start_ns: int, key: Any) -> Changes:
        """A plain flow between two endpoints along the route in force at its start. Raises like ``add``."""
        check_nbytes(nbytes, key)
        start_ns = whole(start_ns, "start_ns")
        taken = self.paths_of(src, dst, start_ns)
        self._check_start(taken.first_byte_ns, start_ns)
        self._check_key(key)
        hops, path_from = encode_paths(taken.paths)
        # A flow without bytes is done as it starts: it never takes its later paths, so the core is not told of them.
        path_from = path_from if nbytes and len(path_from) > 1 else []
        at = ticks_from_ns(taken.first_byte_ns)
        if self._queues is None:
            flow = self._core.add(at, nbytes, None, hops, path_from)
        else:
            flow = self._queues.send(taken.paths[0].links, at, nbytes, hops, path_from, key)
        self._register(flow, key, taken.first_byte_ns, *links_of(taken.paths))
        changes = self._changes(flow)
        self._sent[flow] = SentFlow(src, dst, nbytes, start_ns, key, taken)
        return changes

    def paths_of(self, src: int, dst: int, start_ns: int) -> FlowPaths:
        """The paths of a flow that starts at ``start_ns``, given what is known of the links."""
        routes = self.topology.routes(src, dst)
        here = self._choose(src, dst, routes, start_ns) or self.topology.route(src, dst)
        latency_ns = sum(self._latency_of(link, start_ns) for link in here)
        if self._queues is not None:
            latency_ns = max(0, latency_ns - self._queues.wire_ns(here))
        paths = [PathFrom(start_ns, here)]
        for at_ns in sorted(self._capacity_changes(routes, start_ns)):
            if not self._up(here, at_ns):
                there = self._choose(src, dst, routes, at_ns)
                if there is not None:
                    here = there
                    paths.append(PathFrom(at_ns, here))
        return FlowPaths(start_ns + latency_ns, tuple(paths))

    def set_capacity(self, link: int, at_ns: int, gbps: float) -> Changes:
        """See ``Network.set_capacity``. Flows that were sent over the link take other routes when it goes down (0)."""
        changes = super().set_capacity(link, at_ns, gbps)
        return self._reroute_users(link, at_ns, [changes])

    def set_latency(self, link: int, at_ns: int, latency_ns: int) -> Changes:
        """Sets the link's latency for flows that are sent over it from ``at_ns`` on."""
        self._check_link(link)
        at_ns, latency_ns = whole(at_ns, "at_ns"), whole(latency_ns, "latency_ns")
        if not 0 <= latency_ns <= MAX_LATENCY_NS:
            name = self.topology.links[link].name
            raise FlowError(f"link {name}: latency {latency_ns} ns is not in [0, {MAX_LATENCY_NS}]")
        self._check_start(at_ns, at_ns)
        self._latency_at.setdefault(link, ChangingValue(self.topology.links[link].latency_ns)).set(at_ns, latency_ns)
        return self._reroute_users(link, at_ns, [])

    def retime(self, flow: FlowId, start_ns: int) -> Changes:
        """The flow starts at another time; one that was sent is routed anew."""
        self._check_movable(flow)
        sent = self._sent.get(flow)
        if sent is None:
            return super().retime(flow, start_ns)
        start_ns = whole(start_ns, "start_ns")
        taken = self.paths_of(sent.src, sent.dst, start_ns)
        self._check_start(taken.first_byte_ns, start_ns)
        moved = merge(self._change(flow, replace(sent, start_ns=start_ns, taken=taken)), self._keys)
        return Changes(flow, moved)

    def choices(self, flow: FlowId) -> tuple[Choice, ...]:
        """The routes that were chosen for the flow up to the present, while it lasted."""
        sent = self._sent.get(flow)
        if sent is None:
            return super().choices(flow)
        routes = self.topology.routes(sent.src, sent.dst)
        done_ns = self.completion_ns(flow)
        return tuple(
            Choice(
                path.at_ns,
                routes.index(path.links),
                len(routes),
                tuple(self.topology.links[link].name for link in path.links),
            )
            for path in sent.taken.paths
            if path.at_ns == sent.start_ns or done_ns is None or path.at_ns < done_ns
            if path.at_ns <= self.now_ns
        )

    def _reroute_users(self, link: int, at_ns: int, changes: list[Changes]) -> Changes:
        """A fact about the link from ``at_ns`` on has changed: the flows that may use it are routed anew."""
        for flow, sent in list(self._sent.items()):
            if any(link in route for route in self.topology.routes(sent.src, sent.dst)):
                changes += self._change(flow, replace(sent, taken=self.paths_of(sent.src, sent.dst, sent.start_ns)))
        return Changes(-1, merge(changes, self._keys))

    def _change(self, flow: FlowId, sent: SentFlow) -> list[Changes]:
        """Tells the core what differs from the paths that the flow had."""
        old, new = self._sent[flow].taken, sent.taken
        changes = []
        if old.paths != new.paths:
            same = 0
            while same < min(len(old.paths), len(new.paths)) and old.paths[same] == new.paths[same]:
                same += 1
            from_ns = min(path.at_ns for path in (*old.paths[same:], *new.paths[same:]))
            later = new.paths[same:]
            if not later or later[0].at_ns > from_ns:
                before = new.paths[same - 1 if same else 0]
                later = (PathFrom(from_ns, before.links), *later)
            self._core.redirect(flow, *encode_paths(later))
            self._links[flow] += links_of(later)
            changes.append(self._changes(flow))
        if old.first_byte_ns != new.first_byte_ns:
            self._core.retime(flow, ticks_from_ns(new.first_byte_ns))
            self._starts[flow] = new.first_byte_ns
            changes.append(self._changes(flow))
        self._sent[flow] = sent
        return changes

    def _forget(self, flow: FlowId) -> None:
        super()._forget(flow)
        self._sent.pop(flow, None)

    def _choose(self, src: int, dst: int, routes: tuple[LinkPath, ...], at_ns: int) -> LinkPath | None:
        up = [route for route in routes if self._up(route, at_ns)]
        return up[ecmp(src, dst, len(up))] if up else None

    def _capacity_changes(self, routes: tuple[LinkPath, ...], after_ns: int) -> set[int]:
        """The instants after ``after_ns`` at which the capacity of a link of these routes is set."""
        links = {link for route in routes for link in route if link in self._gbps}
        return {at_ns for link in links for at_ns in self._gbps[link].changes_after(after_ns)}

    def _up(self, route: LinkPath, at_ns: int) -> bool:
        return all(link not in self._gbps or self._gbps[link].at(at_ns) > 0 for link in route)

    def _latency_of(self, link: int, at_ns: int) -> int:
        changing = self._latency_at.get(link)
        return self.topology.links[link].latency_ns if changing is None else int(changing.at(at_ns))


def encode_paths(paths: tuple[PathFrom, ...]) -> tuple[core.Hops, list[int]]:
    """The paths and the ticks from which they are in force, as the core takes them."""
    parts = [core.encode([(link, 1) for link in path.links], i) for i, path in enumerate(paths)]
    return core.join(parts), [ticks_from_ns(path.at_ns) for path in paths]


def links_of(paths: tuple[PathFrom, ...]) -> list[Links]:
    """The links of each path, each of weight 1."""
    return [tuple((link, 1) for link in path.links) for path in paths]


def merge(parts: list[Changes], keys: dict[FlowId, Any]) -> tuple[Moved, ...]:
    """Joins several changes, one after the other, into one."""
    first: dict[FlowId, int | None] = {}
    last: dict[FlowId, int | None] = {}
    for part in parts:
        for moved in part.moved:
            first.setdefault(moved.flow, moved.before_ns)
            last[moved.flow] = moved.after_ns
    changed = [Moved(flow, first[flow], last[flow]) for flow in first if first[flow] != last[flow]]
    return tuple(sorted(changed, key=lambda m: keys[m.flow]))
