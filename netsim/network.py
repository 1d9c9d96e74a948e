"""The network in time: flows are facts, completions are derived from them."""

from __future__ import annotations

from typing import Any

from netsim import engine
from netsim.errors import CommittedError, FlowError
from netsim.groups import Changes, Group, Moved
from netsim.topology import Topology
from netsim.units import MAX_NS, ns_from_ticks, rate_from_gbps, ticks_from_ns

FlowId = int


class Network:
    """Flows over a topology, as a timeline that is a pure function of the flows added."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._capacities = {i: ((0, rate_from_gbps(link.gbps)),) for i, link in enumerate(topology.links)}
        self._facts: dict[int, engine.Fact] = {}
        self._keys: dict[Any, int] = {}
        self._latency: dict[int, int] = {}
        self._next = 0
        self._now = 0
        self._horizon = 0
        self._done: dict[int, int] | None = {}

    @property
    def now_ns(self) -> int:
        """The present: every completion up to here, and none after it, is known."""
        return self._now

    def add(self, group: Group, start_ns: int, key: Any) -> Changes:
        """A flow that starts at ``start_ns``, before the present or after it.

        ``key`` is unique among the flows not yet committed and sortable against their keys: it orders completions
        of the same nanosecond. Raises FlowError for an impossible flow and CommittedError for a start before the
        horizon.
        """
        if group.nbytes < 0:
            raise FlowError(f"flow {key!r}: negative bytes ({group.nbytes})")
        for link, weight in group.links:
            if not 0 <= link < len(self.topology.links):
                raise FlowError(f"flow {key!r}: unknown link {link}")
            if weight <= 0:
                raise FlowError(f"flow {key!r}: link {self.topology.links[link].name} has weight {weight}")
        if key in self._keys:
            raise FlowError(f"flow {key!r}: this key is in use")
        self._check_start(start_ns)
        flow, self._next = self._next, self._next + 1
        cap = None if group.cap_gbps is None else rate_from_gbps(group.cap_gbps)
        start = ticks_from_ns(start_ns + group.latency_ns)
        before = self._known()
        self._facts[flow] = engine.Fact(key, start, group.nbytes, group.links, cap)
        self._latency[flow] = group.latency_ns
        self._keys[key] = flow
        return self._changes(flow, before)

    def retime(self, flow: FlowId, start_ns: int) -> Changes:
        """The flow starts at another time; as if it had been added so."""
        self._check_start(start_ns)
        before = self._known()
        self._facts[flow].start = ticks_from_ns(start_ns + self._latency[flow])
        return self._changes(flow, before)

    def retract(self, flow: FlowId) -> Changes:
        """The flow never was."""
        before = self._known()
        del self._keys[self._facts.pop(flow).key]
        return self._changes(flow, before)

    def completion_ns(self, flow: FlowId) -> int | None:
        """When the flow's last byte arrived, if that is not after the present; else None."""
        done = self._timeline().get(flow)
        return done if done is not None and done <= self._now else None

    def next_completion(self) -> tuple[int, FlowId] | None:
        """The earliest completion after the present, if nothing else is added."""
        later = [(at, self._facts[flow].key, flow) for flow, at in self._timeline().items() if at > self._now]
        if not later:
            return None
        at, _, flow = min(later)
        return at, flow

    def advance(self, to_ns: int) -> list[tuple[int, FlowId]]:
        """Move the present; the completions in (old, to_ns], by time, then key."""
        if to_ns < self._now:
            raise CommittedError(f"the present is {self._now} ns; it cannot go back to {to_ns} ns")
        done = sorted((at, self._facts[f].key, f) for f, at in self._timeline().items() if self._now < at <= to_ns)
        self._now = to_ns
        return [(at, flow) for at, _, flow in done]

    def commit(self, horizon_ns: int) -> None:
        """Promise that nothing before ``horizon_ns`` (at most the present) will be asked or changed; history is
        dropped.
        """
        if not self._horizon <= horizon_ns <= self._now:
            raise CommittedError(f"cannot commit {horizon_ns} ns: committed {self._horizon} ns, present {self._now} ns")
        self._horizon = horizon_ns

    def _check_start(self, start_ns: int) -> None:
        if start_ns < self._horizon:
            raise CommittedError(f"a start at {start_ns} ns is before the committed horizon {self._horizon} ns")
        if start_ns > MAX_NS:
            raise FlowError(f"a start at {start_ns} ns is beyond the clock's range")

    def _timeline(self) -> dict[int, int]:
        if self._done is None:
            done = engine.completions(self._facts, self._capacities)
            self._done = {flow: ns_from_ticks(at) for flow, at in done.items() if at is not None}
        return self._done

    def _known(self) -> dict[int, int]:
        return {flow: at for flow, at in self._timeline().items() if at <= self._now}

    def _changes(self, flow: int, before: dict[int, int]) -> Changes:
        self._done = None
        after = self._known()
        moved = [
            Moved(f, before.get(f), after.get(f)) for f in before.keys() | after.keys() if before.get(f) != after.get(f)
        ]
        keys: dict[int, Any] = {f: fact.key for f, fact in self._facts.items()}
        kept = [m for m in moved if m.flow in keys]
        return Changes(flow, tuple(sorted(kept, key=lambda m: keys[m.flow])))
