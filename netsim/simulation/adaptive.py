"""Adaptive routing: a flow takes the route that is least loaded when it starts.

A choice is made at an instant: a flow's start, or a change of a candidate link's capacity while the flow's route is
down. Choices have an order: by instant, then by the flow's start, then by its key. A choice sees the flows whose start
comes before in that order and that have not completed by the instant, each on the links that the choices before
gave it. The load of a link is ``(weights of the flows it carries + 1) / capacity``; the 1 is the flow that chooses.
The load of a route is that of its most loaded link, leaving aside links that all candidates share. The least load
wins, and among equals the ECMP hash decides.

Completions up to an instant follow from choices before it, so choices made in their order are a function of the facts
alone. A late fact therefore repeats the choices that come after it, in order; only those that come out differently
reach the core. A choice is made once the core has come to its instant, which may be ahead of the present: completions
between the present and the core's time are known, but not reported yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from sortedcontainers import SortedList

from netsim.errors import CommittedError, FlowError
from netsim.simulation.arguments import check_nbytes
from netsim.simulation.groups import Changes, Group, Links
from netsim.simulation.network import FlowId, FlowSegment
from netsim.simulation.routed import FlowPaths, PathFrom, RoutedNetwork, SentFlow, links_of, merge
from netsim.topology import LinkPath, Topology, ecmp
from netsim.units import MAX_NS, ticks_from_ns, whole

Loads = tuple[float | None, ...]


class PendingChoice(NamedTuple):
    """A choice's place in the order of choices."""

    at_ns: int
    flow_start_ns: int
    key: Any
    flow: FlowId


class AdaptiveNetwork(RoutedNetwork):
    """A network whose ``send`` takes the least loaded route. Groups from ``add`` keep their links and count as load."""

    routing = "adaptive"

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        # The core's time: choices up to here are made, completions up to here are in ``_completion``.
        self._core_now = 0
        self._completion: dict[FlowId, int] = {}
        # The completions in ``_completion`` that are after the present.
        self._unreported: dict[FlowId, int] = {}
        self._pending: SortedList[PendingChoice] = SortedList()
        self._choices_of: dict[FlowId, list[PendingChoice]] = {}
        self._loads: dict[FlowId, dict[int, Loads]] = {}
        # The flows that ever use each link, split by whether the core knows their completion.
        self._running_on: defaultdict[int, set[FlowId]] = defaultdict(set)
        self._completed_on: defaultdict[int, set[FlowId]] = defaultdict(set)

    # -- facts

    def send(self, src: int, dst: int, nbytes: int, start_ns: int, key: Any) -> Changes:
        """A plain flow between two endpoints along the least loaded route. Raises like ``add``."""
        check_nbytes(nbytes, key)
        start_ns = whole(start_ns, "start_ns")
        taken = self._undecided(src, dst, start_ns)
        self._check_key(key)
        changes = self._add_sent(SentFlow(src, dst, nbytes, start_ns, key, taken))
        self._schedule_choices(changes.flow)
        return self._with_later_choices(changes.flow, [changes], start_ns, key)

    def add(self, group: Group, start_ns: int, key: Any) -> Changes:
        """Adds a group as in ``Network``; flows sent later may choose otherwise."""
        changes = super().add(group, start_ns, key)
        return self._with_later_choices(changes.flow, [changes], self._starts[changes.flow], key)

    def play(self, table: Any, submit_ns: Any = None) -> Any:
        """Runs a trace as in ``Network``: the flows of a table have their paths."""
        done = super().play(table, submit_ns)
        self._core_now = self._now
        return done

    def retime(self, flow: FlowId, start_ns: int) -> Changes:
        """Moves the flow's start. The flow, and flows that start after its old or new start, choose again."""
        self._check_movable(flow)
        start_ns = whole(start_ns, "start_ns")
        key, sent = self._keys[flow], self._sent.get(flow)
        if sent is None:
            before_ns = self._starts[flow]
            changes = [super().retime(flow, start_ns)]
            return self._with_later_choices(flow, changes, min(before_ns, self._starts[flow]), key)
        taken = self._undecided(sent.src, sent.dst, start_ns)
        changes = self._change(flow, replace(sent, start_ns=start_ns, taken=taken))
        self._unschedule_choices(flow)
        self._schedule_choices(flow)
        return self._with_later_choices(flow, changes, min(sent.start_ns, start_ns), key)

    def retract(self, flow: FlowId) -> Changes:
        """Takes the flow back. Flows that start after it choose again."""
        self._check_movable(flow)
        sent, key = self._sent.get(flow), self._keys[flow]
        start_ns = self._starts[flow] if sent is None else sent.start_ns
        changes = [super().retract(flow)]
        return self._with_later_choices(flow, changes, start_ns, key)

    def paths_of(self, src: int, dst: int, start_ns: int) -> FlowPaths:
        """Raises FlowError: the paths of a flow that was not sent are not known."""
        raise FlowError("a flow's paths depend on the others where routing is adaptive: send it and ask choices(flow)")

    # -- the present

    def completion_ticks(self, flow: FlowId) -> int | None:
        """The tick at which the flow's last byte arrived, if that is not after the present; else None."""
        at = super().completion_ticks(flow)
        return at if at is not None and at <= ticks_from_ns(self._now) else None

    def segments(self, flow: FlowId) -> list[FlowSegment]:
        """The flow's rate between the horizon and the present."""
        now = ticks_from_ns(self._now)
        return [replace(s, to_ticks=min(s.to_ticks, now)) for s in super().segments(flow) if s.from_ticks <= now]

    def _earliest(self) -> list[tuple[int, FlowId]]:
        while not self._unreported:
            ties = super()._earliest()
            next_ns = self._next_choice_ns()
            if next_ns is None or (ties and ties[0][0] < ticks_from_ns(next_ns)):
                return ties
            self._run_core(next_ns)
        return [(at, flow) for flow, at in self._unreported.items()]

    def _complete_until(self, to_ns: int) -> list[tuple[int, FlowId]]:
        if to_ns > self._core_now:
            self._run_core(to_ns)
        limit = ticks_from_ns(to_ns)
        done = [(at, flow) for flow, at in self._unreported.items() if at <= limit]
        for _, flow in done:
            del self._unreported[flow]
        return done

    def _next_choice_ns(self) -> int | None:
        """The instant of the next choice after those that are made."""
        number = self._pending.bisect_left((self._core_now + 1,))
        return int(self._pending[number].at_ns) if number < len(self._pending) else None

    def _run_core(self, to_ns: int) -> None:
        """Brings the core to ``to_ns``, making the choices on the way."""
        while (next_ns := self._next_choice_ns()) is not None and next_ns <= to_ns:
            self._advance_core(next_ns)
            self._choose_from((next_ns,))
        self._advance_core(to_ns)

    def _advance_core(self, to_ns: int) -> None:
        for at, flow in super()._complete_until(to_ns):
            self._note_completion(flow, at)
            self._unreported[flow] = at
        self._core_now = to_ns

    # -- choices

    def _with_later_choices(self, flow: FlowId, changes: list[Changes], start_ns: int, key: Any) -> Changes:
        """Adds to ``changes`` those that follow from choices after a flow of this start and key."""
        more = self._choose_from((start_ns, start_ns, key))
        if more or len(changes) > 1:
            return Changes(flow, merge(changes + more, self._keys))
        return replace(changes[0], flow=flow) if changes else Changes(flow, ())

    def _choose_from(self, first: tuple[Any, ...]) -> list[Changes]:
        """Makes the choices from ``first`` (a ``PendingChoice`` or its front part) to the core's time, in order."""
        changes: list[Changes] = []
        for choice in self._pending.irange(first):
            if choice.at_ns > self._core_now:
                break
            changes += self._make(choice)
        return changes

    def _make(self, choice: PendingChoice) -> list[Changes]:
        at_ns, flow = choice.at_ns, choice.flow
        sent = self._sent[flow]
        first_byte_ns = sent.taken.first_byte_ns
        before = tuple(path for path in sent.taken.paths if path.at_ns < at_ns)
        here: tuple[PathFrom, ...] = ()
        self._loads[flow].pop(at_ns, None)
        if not before or not self._up(before[-1].links, at_ns):
            links = self._least_loaded(sent, flow, at_ns)
            if links is None and not before:
                links = self.topology.route(sent.src, sent.dst)
            here = () if links is None else (PathFrom(at_ns, links),)
        if not before:
            first_byte_ns = at_ns + sum(self._latency_of(link, at_ns) for link in here[0].links)
            self._index(flow, links_of(here))
        # Choices for later instants stay in force until they are made again.
        after = tuple(path for path in sent.taken.paths if path.at_ns > at_ns)
        return self._change(flow, replace(sent, taken=FlowPaths(first_byte_ns, (*before, *here, *after))))

    def _least_loaded(self, sent: SentFlow, flow: FlowId, at_ns: int) -> LinkPath | None:
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

    def _load(self, link: int, sent: SentFlow, flow: FlowId, at_ns: int) -> float:
        at, weight = ticks_from_ns(at_ns), 1
        # At the core's time the flows whose completion is known are gone.
        users = (self._running_on,) if at_ns == self._core_now else (self._running_on, self._completed_on)
        for other in (other for by_link in users for other in by_link.get(link, ())):
            if other != flow and self._completion.get(other, at + 1) > at:
                weight += self._weight(other, link, at_ns, (sent.start_ns, sent.key))
        changing = self._gbps.get(link)
        return weight / (self.topology.links[link].gbps if changing is None else changing.at(at_ns))

    def _weight(self, flow: FlowId, link: int, at_ns: int, order: tuple[int, Any]) -> int:
        """The flow's weight on the link, as seen by a choice at ``at_ns`` of a flow of this start and key."""
        sent = self._sent.get(flow)
        if sent is None:
            start_ns = self._starts[flow]
            if start_ns > at_ns or (start_ns == at_ns and (start_ns, self._keys[flow]) > order):
                return 0
            return sum(weight for x, weight in self._links[flow][0] if x == link)
        until_ns = at_ns if (sent.start_ns, sent.key) < order else at_ns - 1
        current: LinkPath = ()
        for from_ns, links in sent.taken.paths:
            if from_ns <= until_ns:
                current = links
        return int(link in current)

    # -- what is kept beside the facts

    def _undecided(self, src: int, dst: int, start_ns: int) -> FlowPaths:
        """The paths of a flow whose first byte never leaves, until its route is chosen. Raises like ``add``."""
        routes = self.topology.routes(src, dst)
        if start_ns < self._horizon:
            raise CommittedError(f"{start_ns} ns is before the committed horizon {self._horizon} ns")
        slowest_ns = max(sum(self._latency_of(link, start_ns) for link in route) for route in routes)
        self._check_start(start_ns + slowest_ns, start_ns)
        return FlowPaths(MAX_NS, (PathFrom(start_ns, self.topology.route(src, dst)),))

    def _loads_of(self, flow: FlowId) -> dict[int, Loads]:
        return self._loads[flow]

    def _reroute_users(self, link: int, at_ns: int, changes: list[Changes]) -> Changes:
        for flow, sent in self._sent.items():
            if any(link in route for route in self.topology.routes(sent.src, sent.dst)):
                self._unschedule_choices(flow)
                self._schedule_choices(flow)
        return Changes(-1, merge(changes + self._choose_from((at_ns,)), self._keys))

    def _change(self, flow: FlowId, sent: SentFlow) -> list[Changes]:
        known = len(self._links[flow])
        changes = super()._change(flow, sent)
        self._index(flow, self._links[flow][known:])
        return changes

    def _moved(self) -> list[tuple[FlowId, int | None, int | None]]:
        now = ticks_from_ns(self._now)
        moved = []
        for flow, before, after in super()._moved():
            self._note_completion(flow, after)
            self._unreported.pop(flow, None)
            if after is not None and after > now:
                self._unreported[flow] = after
                after = None
            if before is not None and before > now:
                before = None
            if before != after:
                moved.append((flow, before, after))
        return moved

    def _note_completion(self, flow: FlowId, at: int | None) -> None:
        """Records that the core knows, or no longer knows (None), when the flow completes."""
        if at is None:
            self._completion.pop(flow, None)
        else:
            self._completion[flow] = at
        self._index(flow, self._links[flow])

    def _index(self, flow: FlowId, paths: Iterable[Links]) -> None:
        running, completed = self._running_on, self._completed_on
        into, out = (completed, running) if flow in self._completion else (running, completed)
        for link in {link for links in paths for link, _ in links}:
            out[link].discard(flow)
            into[link].add(flow)

    def _schedule_choices(self, flow: FlowId) -> None:
        """Schedules the flow's choices: at its start, and at each instant at which its route may go down or come
        back.
        """
        sent = self._sent[flow]
        changes = self._capacity_changes(self.topology.routes(sent.src, sent.dst), sent.start_ns)
        self._choices_of[flow] = [
            PendingChoice(at_ns, sent.start_ns, sent.key, flow) for at_ns in sorted({sent.start_ns, *changes})
        ]
        self._loads.setdefault(flow, {})
        for choice in self._choices_of[flow]:
            self._pending.add(choice)

    def _unschedule_choices(self, flow: FlowId) -> None:
        for choice in self._choices_of.pop(flow, ()):
            self._pending.remove(choice)

    def _register(self, flow: FlowId, key: Any, start_ns: int, *paths: Links) -> None:
        super()._register(flow, key, start_ns, *paths)
        if start_ns < MAX_NS:
            self._index(flow, paths)

    def _forget(self, flow: FlowId) -> None:
        self._unschedule_choices(flow)
        for link in {link for links in self._links[flow] for link, _ in links}:
            self._running_on[link].discard(flow)
            self._completed_on[link].discard(flow)
        self._completion.pop(flow, None)
        self._unreported.pop(flow, None)
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
