"""The network in time: flows are facts, and completions are computed from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.errors import CommittedError, FlowError, TopologyError
from netsim.native import core
from netsim.simulation.arguments import check_nbytes, column
from netsim.simulation.changing import ChangingValue
from netsim.simulation.groups import Changes, Group, Links, LinksLess, Moved
from netsim.simulation.queues import Queues
from netsim.topology import Topology
from netsim.units import (
    MAX_BYTES,
    MAX_GBPS,
    MAX_NS,
    MIN_GBPS,
    TICK_BITS,
    TICKS_PER_NS,
    ns_from_ticks,
    rate_from_gbps,
    ticks_from_ns,
    whole,
)

FlowId = int

_ENCODED_MOST, _ENCODED_LINKS = 4096, 1 << 20
"""The most groups whose links, and the most links altogether, that are kept as the core reads them."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The one of ``routes`` equally good routes that a flow took at an instant: its number and its links' names."""

    at_ns: int
    route: int
    routes: int
    links: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FlowSegment:
    """An interval in which a flow has one rate: from and to in ticks, rate in rate units, the links in use."""

    from_ticks: int
    to_ticks: int
    rate: int
    links: Links


class Network:
    """Flows over a topology, as a timeline that is a pure function of the flows added."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._queues = None if topology.congestion is None else Queues(topology, topology.congestion)
        self._core: core.Core = core.Core(topology.rates) if self._queues is None else self._queues.core
        self._keys: dict[FlowId, Any] = {}
        self._flows: dict[Any, FlowId] = {}
        self._latency: dict[FlowId, int] = {}
        self._starts: dict[FlowId, int] = {}
        self._gbps: dict[int, ChangingValue] = {}
        # The links of each path, by the core's number of it.
        self._links: dict[FlowId, list[Links]] = {}
        self._encoded: dict[int, tuple[Links, core.Hops]] = {}
        self._encoded_links = 0
        self._now = 0
        self._horizon = 0
        self._played_bytes = 0
        self._core.advance(0)

    @property
    def now_ns(self) -> int:
        """The present: every completion up to here, and none after it, is known."""
        return self._now

    @property
    def horizon_ns(self) -> int:
        """The horizon that ``commit`` has promised last."""
        return self._horizon

    def add(self, group: Group, start_ns: int, key: Any) -> Changes:
        """Adds a flow that starts at ``start_ns``, before the present or after it.

        ``key`` is unique among the flows not yet committed and sortable against their keys: it orders completions of
        the same instant. Raises FlowError for an impossible flow and CommittedError for a start before the horizon.
        """
        hops = self._hops(group, key)
        start_ns = whole(start_ns, "start_ns")
        latency_ns = group.latency_ns
        if self._queues is not None and group.path:
            latency_ns = max(0, latency_ns - self._queues.wire_ns([link for link, _ in group.links]))
        at_ns = start_ns + latency_ns
        self._check_start(at_ns, start_ns)
        self._check_key(key)
        cap = None if group.cap_gbps is None else rate_from_gbps(group.cap_gbps)
        if self._queues is None:
            flow = self._core.add(ticks_from_ns(at_ns), group.nbytes, cap, hops)
        else:
            flow = self._queues.add(group, ticks_from_ns(at_ns), cap, hops, key)
        self._register(flow, key, at_ns, group.links)
        if latency_ns:
            self._latency[flow] = latency_ns
        return self._changes(flow)

    def table(self, paths: Sequence[Sequence[int]], nbytes: Sequence[int], starts_ns: Sequence[int]) -> core.FlowTable:
        """Checks plain flows and puts them in columns, for ``play``. Raises like ``add``."""
        offsets = np.zeros(len(paths) + 1, np.int64)
        np.cumsum([len(path) for path in paths], out=offsets[1:])
        links = column("paths", [link for path in paths for link in path], np.int32)
        sizes, starts = column("nbytes", nbytes, np.int64), column("starts_ns", starts_ns, np.int64)
        if not len(paths) == len(sizes) == len(starts):
            raise FlowError(f"columns of {len(paths)} paths, {len(sizes)} sizes and {len(starts)} starts")
        if len(links) and not (links.min() >= 0 and links.max() < len(self.topology.links)):
            raise FlowError("unknown link in a path")
        if len(sizes) and not (sizes.min() >= 0 and sizes.max() < MAX_BYTES):
            raise FlowError("bytes that are not in [0, 2**58)")
        for bound in (starts.min(), starts.max()) if len(starts) else ():
            self._check_start(int(bound), int(bound))
        return core.FlowTable(starts << TICK_BITS, sizes, offsets, links)

    def play(self, table: core.FlowTable, submit_ns: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Runs a whole trace at full speed and returns the completion ticks of all flows, -1 where a flow stalls for
        ever.

        Each flow is handed over when the present reaches its ``submit_ns`` (default: its start); what no later flow can
        touch is committed on the way. Afterwards the network is at its end and holds nothing. FlowError if it is not
        empty before.
        """
        if self._keys:
            raise FlowError("play needs a network without flows")
        if submit_ns is not None:
            submit_ns = column("submit_ns", submit_ns, np.int64)
            if len(submit_ns) != len(table.starts):
                raise FlowError(f"{len(submit_ns)} instants of submission for {len(table.starts)} flows")
            if len(submit_ns) and not (submit_ns.min() >= 0 and submit_ns.max() <= MAX_NS):
                raise FlowError(f"instants of submission that are not in [0, {MAX_NS}]")
        done, self._played_bytes = self._core.play(table, table.starts if submit_ns is None else submit_ns << TICK_BITS)
        done[done == core.NEVER] = -1
        self._now = self._horizon = max(self._now, ns_from_ticks(int(done.max(initial=0))))
        return done

    def retime(self, flow: FlowId, start_ns: int) -> Changes:
        """Moves the flow's start. The result is as if the flow had been added with this start."""
        self._check_movable(flow)
        start_ns = whole(start_ns, "start_ns")
        first_byte_ns = start_ns + self._latency.get(flow, 0)
        self._check_start(first_byte_ns, start_ns)
        self._core.retime(flow, ticks_from_ns(first_byte_ns))
        self._starts[flow] = first_byte_ns
        return self._changes(flow)

    def retract(self, flow: FlowId) -> Changes:
        """Takes the flow back. The result is as if it had never been added."""
        self._check_movable(flow)
        self._core.retract(flow)
        changes = self._changes(flow)
        self._forget(flow)
        return changes

    def completion_ns(self, flow: FlowId) -> int | None:
        """The ns at which the flow's last byte arrived, if that is not after the present; else None."""
        at = self.completion_ticks(flow)
        return None if at is None else ns_from_ticks(at)

    def completion_ticks(self, flow: FlowId) -> int | None:
        """The tick at which the flow's last byte arrived, if that is not after the present; else None."""
        self._check_flow(flow)
        return self._core.completion(flow)

    def next_completion(self) -> tuple[int, FlowId] | None:
        """The earliest completion after the present, if nothing else is added."""
        ties = self._core.next()
        if not ties:
            return None
        at, flow = min(ties, key=self._order)
        return ns_from_ticks(at), flow

    def advance(self, to_ns: int) -> list[tuple[int, FlowId]]:
        """Moves the present. Returns the completions in (old, to_ns], by exact instant (tick), then key."""
        to_ns = whole(to_ns, "to_ns")
        if not self._now <= to_ns <= MAX_NS:
            raise CommittedError(f"the present is {self._now} ns; it cannot become {to_ns} ns")
        done = self._core.advance(ticks_from_ns(to_ns))
        self._now = to_ns
        if len(done) > 1:
            done.sort(key=self._order)
        return [(ns_from_ticks(at), flow) for at, flow in done]

    def commit(self, horizon_ns: int) -> None:
        """Promises that nothing before ``horizon_ns`` (at most the present) will be asked or changed; drops history."""
        horizon_ns = whole(horizon_ns, "horizon_ns")
        if not self._horizon <= horizon_ns <= self._now:
            raise CommittedError(f"cannot commit {horizon_ns} ns: committed {self._horizon} ns, present {self._now} ns")
        self._horizon = horizon_ns
        for flow in self._core.commit(ticks_from_ns(horizon_ns)):
            self._forget(flow)

    def set_capacity(self, link: int, at_ns: int, gbps: float) -> Changes:
        """Changes the link's capacity to ``gbps`` (0: down) from ``at_ns`` to its next change, in the past and future
        alike.
        """
        self._check_link(link)
        at_ns = whole(at_ns, "at_ns")
        if not isinstance(gbps, int | float):
            raise FlowError(f"gbps: expected a number, not {gbps!r}")
        if gbps and not MIN_GBPS <= gbps <= MAX_GBPS:
            allowed = f"neither 0 nor in [{MIN_GBPS:g}, {MAX_GBPS}]"
            raise FlowError(f"link {self.topology.links[link].name}: capacity {gbps} Gb/s is {allowed}")
        self._check_start(at_ns, at_ns)
        self._core.set_capacity(link, ticks_from_ns(at_ns), rate_from_gbps(gbps))
        self._gbps.setdefault(link, ChangingValue(self.topology.links[link].gbps)).set(at_ns, gbps)
        return self._changes(-1)

    @property
    def flows(self) -> list[FlowId]:
        """The flows that are not committed, in the order of their keys."""
        return sorted(self._keys, key=lambda flow: self._keys[flow])

    def key(self, flow: FlowId) -> Any:
        """The key a flow was added with."""
        self._check_flow(flow)
        return self._keys[flow]

    def segments(self, flow: FlowId) -> list[FlowSegment]:
        """The flow's rate since the horizon, up to its completion or the last event; in ticks and rate units."""
        self._check_flow(flow)
        parts = self._core.segments(flow)
        done = self._core.completion(flow)
        ends = [at for at, _, _ in parts[1:]] + [ticks_from_ns(self._now) if done is None else done]
        paths = self._links[flow]
        return [
            FlowSegment(at, max(at, end), rate, paths[path]) for (at, rate, path), end in zip(parts, ends, strict=False)
        ]

    def choices(self, flow: FlowId) -> tuple[Choice, ...]:
        """The routes that were chosen for the flow up to the present; none if its links were given."""
        self._check_flow(flow)
        return ()

    def capacity_rate(self, link: int, at_ticks: int | None) -> int:
        """A link's capacity in rate units at an instant, or as built (None)."""
        changing = self._gbps.get(link)
        if changing is None or at_ticks is None:
            return self.topology.rates[link]
        return rate_from_gbps(changing.at(at_ticks // TICKS_PER_NS))

    def counters(self) -> dict[str, int]:
        """The counters of what has been done and is held: events, solves, rollbacks, flows, bytes."""
        counters = self._core.counters()
        counters["bytes"] = max(counters["bytes"], self._played_bytes)
        return counters

    def _order(self, item: tuple[int, FlowId]) -> tuple[int, Any]:
        return item[0], self._keys[item[1]]

    def _register(self, flow: FlowId, key: Any, start_ns: int, *paths: Links) -> None:
        self._keys[flow] = key
        self._flows[key] = flow
        self._starts[flow] = start_ns
        self._links[flow] = list(paths)

    def _forget(self, flow: FlowId) -> None:
        key = self._keys.pop(flow)
        del self._flows[key]
        if self._queues is not None:
            self._queues.forget(key)
        del self._starts[flow], self._links[flow]
        self._latency.pop(flow, None)

    def _hops(self, group: Group, key: Any) -> core.Hops:
        check_nbytes(group.nbytes, key)
        if whole(group.latency_ns, "latency_ns") < 0:
            raise FlowError(f"flow {key!r}: negative latency ({group.latency_ns} ns)")
        if group.cap_gbps is not None and not MIN_GBPS <= group.cap_gbps <= MAX_GBPS:
            raise FlowError(f"flow {key!r}: cap {group.cap_gbps} Gb/s is not in [{MIN_GBPS:g}, {MAX_GBPS}]")
        if not isinstance(group.links, LinksLess):
            return self._encode(group.links, key)
        hops = core.without(self._encode(group.links.shared, key), group.links.less)
        if hops is None:
            raise FlowError(f"flow {key!r}: it lacks links that the others do not have: {group.links.less[:8]}")
        return hops

    def _encode(self, links: Links, key: Any) -> core.Hops:
        # Plans are made once and used often: the same tuple of links need not be read again.
        known = self._encoded.get(id(links))
        if known is not None:
            return known[1]
        merged: dict[int, int] = {}
        for link, weight in links:
            if not 0 <= whole(link, "link") < len(self.topology.links):
                raise FlowError(f"flow {key!r}: unknown link {link}")
            if not 0 < whole(weight, "weight") < 1 << 20:
                raise FlowError(f"flow {key!r}: link {self.topology.links[link].name} has weight {weight}")
            merged[link] = merged.get(link, 0) + weight
        hops = core.encode(sorted(merged.items()))
        if len(self._encoded) >= _ENCODED_MOST or self._encoded_links >= _ENCODED_LINKS:
            self._encoded.clear()
            self._encoded_links = 0
        self._encoded[id(links)] = links, hops
        self._encoded_links += len(links)
        return hops

    def _check_link(self, link: int) -> None:
        if not 0 <= whole(link, "link") < len(self.topology.links):
            raise TopologyError(f"unknown link {link}")

    def _check_start(self, effective_ns: int, start_ns: int) -> None:
        if effective_ns < self._horizon or start_ns < 0:
            raise CommittedError(f"{start_ns} ns is before the committed horizon {self._horizon} ns")
        if effective_ns > MAX_NS:
            raise FlowError(f"{start_ns} ns is beyond the clock's range ({MAX_NS} ns)")

    def _check_flow(self, flow: FlowId) -> None:
        if whole(flow, "flow") not in self._keys:
            raise CommittedError(f"flow {flow} is not known: retracted, or completed before the committed horizon")

    def _check_key(self, key: Any) -> None:
        try:
            used = key in self._flows
        except TypeError as error:
            raise FlowError(f"flow {key!r}: this key cannot be hashed") from error
        if used:
            raise FlowError(f"flow {key!r}: this key is in use")
        other = next(iter(self._flows), key)
        try:
            _ = key < other
        except TypeError as error:
            raise FlowError(f"flow {key!r}: this key cannot be sorted against {other!r}") from error

    def _check_movable(self, flow: FlowId) -> None:
        self._check_flow(flow)
        if self._starts[flow] < self._horizon:
            raise CommittedError(f"flow {flow} started before the committed horizon {self._horizon} ns")

    def _changes(self, flow: FlowId) -> Changes:
        moved = self._core.moved()
        if not moved:
            return Changes(flow, ())
        moved.sort(key=lambda m: self._keys[m[0]])
        in_ns = [Moved(f, _ns(before), _ns(after)) for f, before, after in moved]
        return Changes(flow, tuple(m for m in in_ns if m.before_ns != m.after_ns))


def _ns(ticks: int | None) -> int | None:
    return None if ticks is None else ns_from_ticks(ticks)
