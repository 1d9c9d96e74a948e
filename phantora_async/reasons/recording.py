"""Records, as a listener of virtual time, what each interval on a stream or a host had waited for: the graph of a step.

The facts are all known, so that nothing is simulated ahead and all ranks' events come in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from phantora_async.virtual_time import Collective, Event, HostState, events

StreamKey = tuple[int, int]
"""Identifies a stream: its rank and its number."""


@dataclass(slots=True, eq=False)
class HostRun:
    """An interval in which the host ran, from the instant at which it was woken until it waited."""

    rank: int
    start_ns: int
    cause: Interval | None
    """The interval that ended at ``start_ns`` and woke it; None: it is the first one."""


@dataclass(slots=True, eq=False)
class SegmentRun:
    """An interval in which a segment was at the head of its stream."""

    rank: int
    start_ns: int
    cause: Interval | None
    """The interval that ended at ``start_ns``, or the host's run that launched the segment then."""
    launched: events.SegmentLaunched
    launcher: HostRun
    end_ns: int = -1
    work_end_ns: int = -1
    """The end of its work; earlier than ``end_ns`` if the last kernels were launched too late."""
    left: int = 0
    """The units of work that are not done at ``updated_ns``."""
    rate: int = 0
    """The units that are done per nanosecond since then."""
    updated_ns: int = 0


class Moved(NamedTuple):
    """A collective of an NCCL kernel."""

    collective: Collective
    begun_ns: int
    done_ns: int
    last: NcclRun
    """The kernel that arrived last, when data began to move."""


@dataclass(slots=True, eq=False)
class NcclRun:
    """An interval in which an NCCL kernel was resident, waiting for members or moving data."""

    rank: int
    start_ns: int
    cause: Interval | None
    moved: list[Moved] = field(default_factory=list)
    end_ns: int = -1


Interval = HostRun | SegmentRun | NcclRun


class StepReached(NamedTuple):
    at_ns: int
    cause: Interval
    """The interval that the last stream was waiting for."""


class Recorder:
    """Implements ``Listener`` for all ranks."""

    def __init__(self, world_size: int) -> None:
        self.hosts = [HostRun(rank, 0, None) for rank in range(world_size)]
        """The latest run of each rank's host."""
        self.steps: dict[tuple[int, int], StepReached] = {}
        """The ends of steps, by rank and number."""
        self.outside: dict[int, list[tuple[int, int]]] = {}
        """The intervals in which ranks waited in a socket or for a file, by rank."""
        self.segments: list[SegmentRun] = []
        self.nccl: list[NcclRun] = []
        self._cause: list[Interval] = list(self.hosts)
        """The interval that ended last on one of a rank's streams, or its host's run if that has done something since;
        by rank.
        """
        self._asked: Interval = self.hosts[0]
        """The run of the host that asked for a communicator last."""
        self._launched: dict[StreamKey, deque[tuple[events.SegmentLaunched, HostRun]]] = {}
        self._running: dict[StreamKey, SegmentRun] = {}
        self._kernels: dict[StreamKey, NcclRun] = {}
        self._last: dict[StreamKey, Interval] = {}
        """The interval that ended last on each stream."""
        self._last_of_rank: dict[int, Interval] = {}
        self._reached: dict[tuple[int, int], Interval] = {}
        """The interval that ended when an event recording was complete for which the host waits; by rank and number of
        the recording.
        """
        self._blocked: dict[int, events.HostBlocked] = {}
        self._handlers: dict[type, Callable[[int, Any], None]] = {
            events.HostBlocked: self._host_blocked,
            events.HostWoken: self._host_woken,
            events.EventReached: self._event_reached,
            events.CommAsked: self._comm_asked,
            events.UnseenPassed: self._unseen_passed,
            events.StepMarked: self._step_marked,
            events.StepDone: self._step_done,
            events.SegmentLaunched: self._segment_launched,
            events.SegmentBegan: self._segment_began,
            events.SegmentRate: self._segment_rate,
            events.SegmentEnded: self._segment_ended,
            events.NcclLaunched: self._nccl_launched,
            events.NcclBegan: self._nccl_began,
            events.CollectiveDone: self._collective_done,
            events.NcclEnded: self._nccl_ended,
        }

    def on(self, rank: int, event: Event) -> None:
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(rank, event)

    # ---- hosts -----------------------------------------------------------------------------------------------------

    def _host_blocked(self, rank: int, event: events.HostBlocked) -> None:
        self._blocked[rank] = event

    def _host_woken(self, rank: int, event: events.HostWoken) -> None:
        self.hosts[rank] = HostRun(rank, event.at_ns, self._woke(rank, event.at_ns))

    def _woke(self, rank: int, now_ns: int) -> Interval | None:
        """The interval for which the host has waited."""
        blocked = self._blocked.pop(rank, None)
        match blocked and blocked.state:
            case HostState.WAITS_STREAM | HostState.WAITS_QUEUE:
                assert blocked is not None
                last = self._last.get((rank, blocked.on))
                return last if last is not None and _ended_ns(last) == now_ns else self._last_of_rank.get(rank)
            case HostState.WAITS_EVENT:
                assert blocked is not None
                return self._reached.pop((rank, blocked.on), None)
            case HostState.WAITS_DEVICE:
                return self._last_of_rank.get(rank)
        return self._asked

    def _event_reached(self, rank: int, event: events.EventReached) -> None:
        self._reached[rank, event.recording] = self._cause[rank]

    def _comm_asked(self, rank: int, event: events.CommAsked) -> None:
        self._asked = self.hosts[rank]

    def _unseen_passed(self, rank: int, event: events.UnseenPassed) -> None:
        self.outside.setdefault(rank, []).append((event.at_ns - event.for_ns, event.at_ns))

    def _step_marked(self, rank: int, event: events.StepMarked) -> None:
        self._cause[rank] = self.hosts[rank]

    def _step_done(self, rank: int, event: events.StepDone) -> None:
        self.steps[rank, event.number] = StepReached(event.at_ns, self._cause[rank])

    # ---- streams ---------------------------------------------------------------------------------------------------

    def _ended(self, place: StreamKey, run: Interval) -> None:
        self._cause[run.rank] = self._last[place] = self._last_of_rank[run.rank] = run

    def _segment_launched(self, rank: int, event: events.SegmentLaunched) -> None:
        self._cause[rank] = host = self.hosts[rank]
        self._launched.setdefault((rank, event.stream), deque()).append((event, host))

    def _segment_began(self, rank: int, event: events.SegmentBegan) -> None:
        place = rank, event.stream
        launched = self._launched[place].popleft()
        run = SegmentRun(rank, event.at_ns, self._cause[rank], *launched, left=event.work, updated_ns=event.at_ns)
        self._running[place] = run
        self.segments.append(run)

    def _segment_rate(self, rank: int, event: events.SegmentRate) -> None:
        run = self._running[rank, event.stream]
        left = run.left - run.rate * (event.at_ns - run.updated_ns)
        if left > 0:  # else its work is done, and its last launch has not come
            run.left, run.rate, run.updated_ns = left, event.rate, event.at_ns

    def _segment_ended(self, rank: int, event: events.SegmentEnded) -> None:
        place = rank, event.stream
        run = self._running.pop(place)
        run.end_ns = event.at_ns
        done_ns = run.updated_ns - (-run.left // run.rate) if run.left else run.start_ns
        run.work_end_ns = min(done_ns, event.at_ns)
        self._ended(place, run)

    # ---- NCCL ------------------------------------------------------------------------------------------------------

    def _nccl_launched(self, rank: int, event: events.NcclLaunched) -> None:
        self._cause[rank] = self.hosts[rank]

    def _nccl_began(self, rank: int, event: events.NcclBegan) -> None:
        run = self._kernels[rank, event.stream] = NcclRun(rank, event.at_ns, self._cause[rank])
        self.nccl.append(run)

    def _collective_done(self, rank: int, event: events.CollectiveDone) -> None:
        last = self._kernels[event.last_rank, event.last_stream]
        self._kernels[rank, event.stream].moved.append(Moved(event.collective, event.begun_ns, event.at_ns, last))

    def _nccl_ended(self, rank: int, event: events.NcclEnded) -> None:
        place = rank, event.stream
        run = self._kernels.pop(place)
        run.end_ns = event.at_ns
        self._ended(place, run)


def _ended_ns(run: Interval) -> int:
    return run.start_ns if isinstance(run, HostRun) else run.end_ns
