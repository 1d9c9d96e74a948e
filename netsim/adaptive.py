"""Adaptive routing: a flow takes the route that is least loaded when it starts.

A choice is made at an instant: a flow's start, or a change of a candidate link's capacity while the flow's route is
down. Choices have an order: by instant, then by the flow's start, then by its key. A choice sees the flows whose start
comes before in that order and that have not completed by the instant, each on the links that the choices before
gave it. The load of a link is ``(weights of the flows it carries + 1) / capacity``, the one being the flow
that chooses; that of a route is its most loaded link's, leaving aside links that all candidates share. The
least load wins, and among equals the ECMP hash decides.

Completions up to an instant follow from choices before it, so choices made in their order are a function of the facts
alone. A late fact therefore repeats the choices that come after it, in order, and only those made otherwise
reach the core. A choice of the future waits until the core has come to its instant, which may be ahead of the present:
what is known from there is held back.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from netsim.errors import CommittedError, FlowError
from netsim.groups import Changes, Group, Moved
from netsim.network import FlowId, Links, Segment
from netsim.routed import RoutedNetwork, Sent, Way, encode_paths, links_of, merge
from netsim.topology import Path_, Topology, ecmp
from netsim.units import MAX_NS, ns_from_ticks, ticks_from_ns

Loads = tuple[float | None, ...]
_Turn = tuple[Any, ...]
"""A choice's place in the order: (instant, flow's start, flow's key, flow); or the front part of one."""


class AdaptiveNetwork(RoutedNetwork):
    """A network whose ``send`` takes the least loaded route. Groups from ``add`` keep their links and count as load."""

    routing = "adaptive"

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        # The core's present: choices up to here are made, completions up to here are in ``_ends``.
        self._ahead = 0
        self._ends: dict[FlowId, int] = {}
        # Of these, the completions that are after the public present.
        self._unseen: dict[FlowId, int] = {}
        self._agenda: list[_Turn] = []
        self._turns: dict[FlowId, list[_Turn]] = {}
        self._loads: dict[FlowId, dict[int, Loads]] = {}
        # By link: flows that ever use it, with completion unknown to the core and known.
        self._lasting: defaultdict[int, set[FlowId]] = defaultdict(set)
        self._ended: defaultdict[int, set[FlowId]] = defaultdict(set)

    # -- facts

    def send(self, src: int, dst: int, nbytes: int, start_ns: int, key: Any) -> Changes:
        """A plain flow between two endpoints along the least loaded route. Raises like ``add``."""
        if nbytes < 0:
            raise FlowError(f"flow {key!r}: negative bytes ({nbytes})")
        way = self._undecided(src, dst, start_ns)
        self._check_key(key)
        hops, _ = encode_paths(way.paths)
        flow = self._core.add(ticks_from_ns(way.start_ns), nbytes, None, hops)
        self._name(flow, key, way.start_ns, *links_of(way.paths))
        changes = [self._changes(flow)]
        self._sent[flow] = Sent(src, dst, nbytes, start_ns, key, way)
        self._enlist(flow)
        return self._settled(flow, changes, start_ns, key)

    def add(self, group: Group, start_ns: int, key: Any) -> Changes:
        """As in ``Network``; flows sent later may choose otherwise."""
        changes = super().add(group, start_ns, key)
        return self._settled(changes.flow, [changes], self._starts[changes.flow], key)

    def add_path(self, path: tuple[int, ...], nbytes: int, start_ns: int, key: Any) -> Changes:
        """As in ``Network``; flows sent later may choose otherwise."""
        changes = super().add_path(path, nbytes, start_ns, key)
        return self._settled(changes.flow, [changes], start_ns, key)

    def add_many(
        self, paths: Sequence[Sequence[int]], nbytes: Sequence[int], starts_ns: Sequence[int], keys: Sequence[Any]
    ) -> tuple[Sequence[FlowId], tuple[Moved, ...]]:
        """As in ``Network``; flows sent later may choose otherwise."""
        flows, moved = super().add_many(paths, nbytes, starts_ns, keys)
        if not flows:
            return flows, moved
        changes = [Changes(-1, moved), *self._settle((min(starts_ns),))]
        return flows, merge(changes, self._keys)

    def play(self, table: Any, submit_ns: Any = None) -> Any:
        """As in ``Network``: the flows of a table have their paths."""
        done = super().play(table, submit_ns)
        self._ahead = self._now
        return done

    def retime(self, flow: FlowId, start_ns: int) -> Changes:
        """The flow starts at another time; it and those after its old or new start choose anew."""
        self._check_movable(flow)
        key, sent = self._keys[flow], self._sent.get(flow)
        if sent is None:
            before_ns = self._starts[flow]
            changes = [super().retime(flow, start_ns)]
            return self._settled(flow, changes, min(before_ns, self._starts[flow]), key)
        way = self._undecided(sent.src, sent.dst, start_ns)
        changes = self._change(flow, replace(sent, start_ns=start_ns, way=way))
        self._delist(flow)
        self._enlist(flow)
        return self._settled(flow, changes, min(sent.start_ns, start_ns), key)

    def retract(self, flow: FlowId) -> Changes:
        """The flow never was; those after its start choose anew."""
        self._check_movable(flow)
        sent, key = self._sent.get(flow), self._keys[flow]
        start_ns = self._starts[flow] if sent is None else sent.start_ns
        changes = [super().retract(flow)]
        return self._settled(flow, changes, start_ns, key)

    def way(self, src: int, dst: int, start_ns: int) -> Way:
        """Not known for a flow that is not there: FlowError."""
        raise FlowError("a flow's way depends on the others where routing is adaptive: send it and ask choices(flow)")

    # -- the present

    def next_completion(self) -> tuple[int, FlowId] | None:
        """The earliest completion after the present, if nothing else is added."""
        while not self._unseen:
            ties = self._core.next()
            coming = self._coming()
            if coming is None or (ties and ties[0][0] < ticks_from_ns(coming)):
                break
            self._run(coming)
        else:
            ties = [(at, flow) for flow, at in self._unseen.items()]
        if not ties:
            return None
        at, flow = min(ties, key=self._order)
        return ns_from_ticks(at), flow

    def advance(self, to_ns: int) -> list[tuple[int, FlowId]]:
        """Move the present; the completions in (old, to_ns], by exact instant (tick), then key."""
        if not self._now <= to_ns <= MAX_NS:
            raise CommittedError(f"the present is {self._now} ns; it cannot become {to_ns} ns")
        if to_ns > self._ahead:
            self._run(to_ns)
        self._now = to_ns
        limit = ticks_from_ns(to_ns)
        done = sorted(((at, flow) for flow, at in self._unseen.items() if at <= limit), key=self._order)
        for _, flow in done:
            del self._unseen[flow]
        return [(ns_from_ticks(at), flow) for at, flow in done]

    def completion_ticks(self, flow: FlowId) -> int | None:
        """When the flow's last byte arrived, to the tick, if that is not after the present."""
        at = super().completion_ticks(flow)
        return at if at is not None and at <= ticks_from_ns(self._now) else None

    def segments(self, flow: FlowId) -> list[Segment]:
        """The flow's rate between the horizon and the present."""
        now = ticks_from_ns(self._now)
        return [replace(s, to_ticks=min(s.to_ticks, now)) for s in super().segments(flow) if s.from_ticks <= now]

    def _coming(self) -> int | None:
        """The instant of the next choice after those that are made."""
        i = bisect_left(self._agenda, (self._ahead + 1,))
        return int(self._agenda[i][0]) if i < len(self._agenda) else None

    def _run(self, to_ns: int) -> None:
        """Bring the core to ``to_ns``, making the choices on the way."""
        while (coming := self._coming()) is not None and coming <= to_ns:
            self._step(coming)
            self._settle((coming,))
        self._step(to_ns)

    def _step(self, to_ns: int) -> None:
        for at, flow in self._core.advance(ticks_from_ns(to_ns)):
            self._learn(flow, at)
            self._unseen[flow] = at
        self._ahead = to_ns

    # -- choices

    def _settled(self, flow: FlowId, changes: list[Changes], start_ns: int, key: Any) -> Changes:
        """``changes`` with those that follow from choices after a flow of this start and key."""
        more = self._settle((start_ns, start_ns, key))
        if more or len(changes) > 1:
            return Changes(flow, merge(changes + more, self._keys))
        return replace(changes[0], flow=flow) if changes else Changes(flow, ())

    def _settle(self, first: _Turn) -> list[Changes]:
        """Make the choices from ``first`` on, up to the core's present, anew and in order."""
        changes: list[Changes] = []
        i = bisect_left(self._agenda, first)
        while i < len(self._agenda) and self._agenda[i][0] <= self._ahead:
            changes += self._decide(*self._agenda[i])
            i += 1
        return changes

    def _decide(self, at_ns: int, start_ns: int, key: Any, flow: FlowId) -> list[Changes]:
        sent = self._sent[flow]
        first_ns = sent.way.start_ns
        before = tuple(x for x in sent.way.paths if x[0] < at_ns)
        here: tuple[tuple[int, Path_], ...] = ()
        self._loads[flow].pop(at_ns, None)
        if not before or not self._up(before[-1][1], at_ns):
            path = self._least_loaded(sent, flow, at_ns)
            if path is None and not before:
                path = self.topology.route(sent.src, sent.dst)
            here = () if path is None else ((at_ns, path),)
        if not before:
            first_ns = at_ns + sum(self._latency_of(link, at_ns) for link in here[0][1])
            self._index(flow, links_of(here))
        # What was chosen later stays until its own turn comes.
        after = tuple(x for x in sent.way.paths if x[0] > at_ns)
        return self._change(flow, replace(sent, way=Way(first_ns, (*before, *here, *after))))

    def _least_loaded(self, sent: Sent, flow: FlowId, at_ns: int) -> Path_ | None:
        routes = self.topology.routes(sent.src, sent.dst)
        up = [route for route in routes if self._up(route, at_ns)]
        if not up:
            return None
        shared = set(up[0]).intersection(*up[1:])
        links = {link: self._load(link, sent, flow, at_ns) for link in set().union(*up) - shared}
        loads = {route: max((links[link] for link in route if link not in shared), default=0.0) for route in up}
        least = min(loads.values())
        tied = [route for route in up if loads[route] == least]
        self._loads[flow][at_ns] = tuple(loads.get(route) for route in routes)
        return tied[ecmp(sent.src, sent.dst, len(tied))]

    def _load(self, link: int, sent: Sent, flow: FlowId, at_ns: int) -> float:
        at, weight = ticks_from_ns(at_ns), 1
        # At the core's present the flows whose end is known are gone.
        users = (self._lasting,) if at_ns == self._ahead else (self._lasting, self._ended)
        for other in (other for by_link in users for other in by_link.get(link, ())):
            if other != flow and self._ends.get(other, at + 1) > at:
                weight += self._weight(other, link, at_ns, (sent.start_ns, sent.key))
        steps = self._gbps.get(link)
        return weight / (self.topology.links[link].gbps if steps is None else steps.get(at_ns))

    def _weight(self, flow: FlowId, link: int, at_ns: int, order: tuple[int, Any]) -> int:
        """What the flow puts on the link, as seen by a choice at ``at_ns`` of a flow of this start and key."""
        sent = self._sent.get(flow)
        if sent is None:
            start_ns = self._starts[flow]
            if start_ns > at_ns or (start_ns == at_ns and (start_ns, self._keys[flow]) > order):
                return 0
            return sum(weight for x, weight in self._links[flow][0] if x == link)
        until_ns = at_ns if (sent.start_ns, sent.key) < order else at_ns - 1
        path: Path_ = ()
        for from_ns, there in sent.way.paths:
            if from_ns <= until_ns:
                path = there
        return int(link in path)

    # -- what is kept beside the facts

    def _undecided(self, src: int, dst: int, start_ns: int) -> Way:
        """A way whose first byte leaves at the end of time, until the route is chosen; CommittedError, FlowError."""
        routes = self.topology.routes(src, dst)
        if start_ns < self._horizon:
            raise CommittedError(f"{start_ns} ns is before the committed horizon {self._horizon} ns")
        slowest_ns = max(sum(self._latency_of(link, start_ns) for link in route) for route in routes)
        self._check_start(start_ns + slowest_ns, start_ns)
        return Way(MAX_NS, ((start_ns, self.topology.route(src, dst)),))

    def _loads_of(self, flow: FlowId) -> dict[int, Loads]:
        return self._loads[flow]

    def _follow(self, link: int, at_ns: int, changes: list[Changes]) -> Changes:
        for flow, sent in self._sent.items():
            if any(link in route for route in self.topology.routes(sent.src, sent.dst)):
                self._delist(flow)
                self._enlist(flow)
        return Changes(-1, merge(changes + self._settle((at_ns,)), self._keys))

    def _change(self, flow: FlowId, sent: Sent) -> list[Changes]:
        known = len(self._links[flow])
        changes = super()._change(flow, sent)
        self._index(flow, self._links[flow][known:])
        return changes

    def _moved(self) -> list[tuple[FlowId, int | None, int | None]]:
        now = ticks_from_ns(self._now)
        moved = []
        for flow, before, after in super()._moved():
            self._learn(flow, after)
            self._unseen.pop(flow, None)
            if after is not None and after > now:
                self._unseen[flow] = after
                after = None
            if before is not None and before > now:
                before = None
            if before != after:
                moved.append((flow, before, after))
        return moved

    def _learn(self, flow: FlowId, end: int | None) -> None:
        """The core knows, or no longer knows, when the flow completes."""
        if end is None:
            self._ends.pop(flow, None)
        else:
            self._ends[flow] = end
        self._index(flow, self._links[flow])

    def _index(self, flow: FlowId, paths: Iterable[Links]) -> None:
        into, out = (self._ended, self._lasting) if flow in self._ends else (self._lasting, self._ended)
        for link in {link for links in paths for link, _ in links}:
            out[link].discard(flow)
            into[link].add(flow)

    def _enlist(self, flow: FlowId) -> None:
        """Put the flow's start, and each instant at which its route may go down or return, on the agenda."""
        sent = self._sent[flow]
        links = {link for route in self.topology.routes(sent.src, sent.dst) for link in route}
        turns = {at for link in links if link in self._gbps for at in self._gbps[link].at_ns if at > sent.start_ns}
        self._turns[flow] = [(at, sent.start_ns, sent.key, flow) for at in sorted({sent.start_ns, *turns})]
        self._loads.setdefault(flow, {})
        for turn in self._turns[flow]:
            insort(self._agenda, turn)

    def _delist(self, flow: FlowId) -> None:
        for turn in self._turns.pop(flow, ()):
            del self._agenda[bisect_left(self._agenda, turn)]

    def _name(self, flow: FlowId, key: Any, start_ns: int, *paths: Links) -> None:
        super()._name(flow, key, start_ns, *paths)
        if start_ns < MAX_NS:
            self._index(flow, paths)

    def _forget(self, flow: FlowId) -> None:
        self._delist(flow)
        for link in {link for links in self._links[flow] for link, _ in links}:
            self._lasting[link].discard(flow)
            self._ended[link].discard(flow)
        self._ends.pop(flow, None)
        self._unseen.pop(flow, None)
        self._loads.pop(flow, None)
        super()._forget(flow)

    def _check_movable(self, flow: FlowId) -> None:
        super()._check_movable(flow)
        sent = self._sent.get(flow)
        if sent is not None and sent.start_ns < self._horizon:
            raise CommittedError(f"flow {flow} started before the committed horizon {self._horizon} ns")


def routed_network(topology: Topology) -> RoutedNetwork:
    """The network that follows the topology's routing, ``ecmp`` or ``adaptive``."""
    return AdaptiveNetwork(topology) if topology.routing == "adaptive" else RoutedNetwork(topology)
