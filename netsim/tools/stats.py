"""Computes statistics of links: utilisation over time, which flows shared a link, and which link limited a flow.

Everything is computed from the flows' rate segments, so it is as independent of the order of calls as they are. Time
is given in ns as floats, to the tick. Committed history is gone: take statistics of a window before committing it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from heapq import nlargest
from typing import Any

from netsim.errors import FlowError
from netsim.simulation.network import Choice, FlowId, FlowSegment, Network
from netsim.units import MAX_NS, TICKS_PER_NS, gbps_from_rate

BUSIEST = 5


@dataclass(frozen=True, slots=True)
class RateSegment:
    """An interval in which a flow has one rate. ``bottleneck``: the link that limited it when the segment began; "" if
    its own cap did.
    """

    from_ns: float
    to_ns: float
    gbps: float
    bottleneck: str


@dataclass(frozen=True, slots=True)
class FlowStatistics:
    """One flow. ``completion_ns`` is None while it is not known; ``choices`` has the routes chosen for it."""

    key: str
    completion_ns: float | None
    segments: tuple[RateSegment, ...]
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """One link over the window. ``timeline``: mean utilisation (0 to 1) in each of its equal parts."""

    name: str
    gbps: float
    nbytes: float
    utilisation: float
    peak_utilisation: float
    peak_flows: int
    busiest: tuple[tuple[str, float], ...]
    timeline: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Statistics:
    """The links that carried something, in the topology's order, and all flows, in the order of their keys."""

    from_ns: float
    to_ns: float
    links: tuple[LinkStatistics, ...]
    flows: tuple[FlowStatistics, ...]

    def json(self) -> dict[str, Any]:
        """The statistics as plain lists and dictionaries."""
        return asdict(self)


@dataclass(slots=True)
class _Link:
    nbytes: float = 0.0
    peak_rate: int = 0
    peak_flows: int = 0
    load: int = 0
    users: set[FlowId] = field(default_factory=set)


def take(net: Network, from_ns: float = 0.0, to_ns: float | None = None, bins: int = 100) -> Statistics:
    """The statistics of the flows that are not committed, between two instants (default: until the present)."""
    end_ns = float(net.now_ns) if to_ns is None else to_ns
    if bins < 1 or not 0 <= from_ns <= end_ns <= MAX_NS:
        raise FlowError(f"statistics from {from_ns} ns to {end_ns} ns in {bins} intervals: nothing to divide")
    begin, end = round(from_ns * TICKS_PER_NS), round(end_ns * TICKS_PER_NS)
    flows = net.flows
    segments = {flow: _clipped(net.segments(flow), begin, end) for flow in flows}
    limits, links = _sweep(net, segments)
    return Statistics(
        from_ns=from_ns,
        to_ns=end_ns,
        links=_links(net, segments, links, begin, end, bins),
        flows=tuple(_flow(net, flow, segments[flow], limits) for flow in flows),
    )


def _clipped(segments: Sequence[FlowSegment], begin: int, end: int) -> list[FlowSegment]:
    if segments and begin <= segments[0].from_ticks and segments[-1].to_ticks <= end:
        inside = list(segments)
    else:
        inside = [FlowSegment(max(s.from_ticks, begin), min(s.to_ticks, end), s.rate, s.links) for s in segments]
    return [s for s in inside if s.from_ticks < s.to_ticks]


def _sweep(
    net: Network, segments: dict[FlowId, list[FlowSegment]]
) -> tuple[dict[tuple[FlowId, int], str], dict[int, _Link]]:
    """Walks through time: finds the peaks of each link, and for each segment (flow, from) the link that limited it."""
    begins: dict[int, list[tuple[FlowId, FlowSegment]]] = defaultdict(list)
    ends: dict[int, list[tuple[FlowId, FlowSegment]]] = defaultdict(list)
    for flow, parts in segments.items():
        for part in parts:
            begins[part.from_ticks].append((flow, part))
            ends[part.to_ticks].append((flow, part))
    links: dict[int, _Link] = defaultdict(_Link)
    rates: dict[FlowId, int] = {}
    limits: dict[tuple[FlowId, int], str] = {}
    for at in sorted(begins.keys() | ends.keys()):
        # Rates end before others begin at the same instant: else a peak would count both.
        for flow, part in ends.get(at, ()):
            del rates[flow]
            for link, weight in part.links:
                state = links[link]
                state.load -= weight * part.rate
                state.users.discard(flow)
        began = begins.get(at, ())
        for flow, part in began:
            rates[flow] = part.rate
            for link, weight in part.links:
                state = links[link]
                state.load += weight * part.rate
                state.users.add(flow)
                state.nbytes += weight * part.rate * (part.to_ticks - part.from_ticks) / _BYTE
        # Peaks and bottlenecks are looked at when all rates of this instant are in place.
        for _, part in began:
            for link, _ in part.links:
                state = links[link]
                if state.load > state.peak_rate:
                    state.peak_rate = state.load
                if len(state.users) > state.peak_flows:
                    state.peak_flows = len(state.users)
        for flow, part in began:
            limits[flow, at] = _bottleneck(net, part, links, rates, at)
    return limits, links


_BYTE = float(1 << 60)


def _bottleneck(net: Network, part: FlowSegment, links: dict[int, _Link], rates: dict[FlowId, int], at: int) -> str:
    """The first of the flow's links that is full and on which no flow is faster."""
    for link, _ in sorted(part.links):
        state = links[link]
        full = state.load + _SLACK * len(state.users) >= net.capacity_rate(link, at)
        if full and (len(state.users) == 1 or all(rates[other] <= part.rate + _SLACK for other in state.users)):
            return net.topology.links[link].name
    return ""


_SLACK = 1 << 24
"""The rate units (6e-8 byte/ns) within which rounded shares count as equal."""


def _flow(
    net: Network, flow: FlowId, parts: list[FlowSegment], limits: dict[tuple[FlowId, int], str]
) -> FlowStatistics:
    done = net.completion_ticks(flow)
    return FlowStatistics(
        key=str(net.key(flow)),
        completion_ns=None if done is None else done / TICKS_PER_NS,
        segments=tuple(
            RateSegment(
                part.from_ticks / TICKS_PER_NS,
                part.to_ticks / TICKS_PER_NS,
                gbps_from_rate(part.rate),
                limits[flow, part.from_ticks],
            )
            for part in parts
        ),
        choices=net.choices(flow),
    )


def _links(
    net: Network,
    segments: dict[FlowId, list[FlowSegment]],
    seen: dict[int, _Link],
    begin: int,
    end: int,
    bins: int,
) -> tuple[LinkStatistics, ...]:
    moved: dict[int, dict[FlowId, float]] = defaultdict(lambda: defaultdict(float))
    timelines: dict[int, list[float]] = defaultdict(lambda: [0.0] * bins)
    width = (end - begin) / bins if end > begin else 1.0
    for flow, parts in segments.items():
        for part in parts:
            first, last = int((part.from_ticks - begin) / width), min(bins - 1, int((part.to_ticks - begin) / width))
            for link, weight in part.links:
                rate = weight * part.rate
                moved[link][flow] += rate * (part.to_ticks - part.from_ticks) / _BYTE
                line = timelines[link]
                for i in range(first, last + 1):
                    overlap = min(part.to_ticks, begin + (i + 1) * width) - max(part.from_ticks, begin + i * width)
                    line[i] += rate * max(0.0, overlap)
    found = []
    for link in sorted(moved):
        about, state = net.topology.links[link], seen[link]
        capacity = net.capacity_rate(link, None)
        users = _busiest(net, moved[link])
        found.append(
            LinkStatistics(
                name=about.name,
                gbps=about.gbps,
                nbytes=state.nbytes,
                utilisation=state.nbytes * _BYTE / (capacity * (end - begin)),
                peak_utilisation=state.peak_rate / capacity,
                peak_flows=state.peak_flows,
                busiest=users,
                timeline=tuple(value / (capacity * width) for value in timelines[link]),
            )
        )
    return tuple(found)


def _busiest(net: Network, moved: dict[FlowId, float]) -> tuple[tuple[str, float], ...]:
    """The flows that moved most; equal ones in the order of their keys."""
    least = nlargest(BUSIEST, moved.values())[-1]
    found = [(str(net.key(flow)), nbytes) for flow, nbytes in moved.items() if nbytes >= least]
    return tuple(sorted(found, key=lambda item: (-item[1], item[0]))[:BUSIEST])
