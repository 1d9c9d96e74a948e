"""What happens to a traced rank in virtual time, told in order and only when it is final.

``start`` makes the parts of the timeline tell it. Until then they are their plain classes, and tracing costs nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from emu.contract import records
from emu.contract.records import MarkerKind
from phantora_async.virtual_time.collectives import Collectives
from phantora_async.virtual_time.entities import (
    Device,
    EventRecording,
    Host,
    HostState,
    NcclKernel,
    Segment,
    Stream,
    Transfer,
)
from phantora_async.virtual_time.facts import Collective
from phantora_async.virtual_time.hosts import Hosts
from phantora_async.virtual_time.rollback_log import Trace
from phantora_async.virtual_time.streams import WORK_UNIT, Streams
from phantora_async.virtual_time.timeline import Timeline


class Entries(NamedTuple):
    """A TRACE record, at the instant of the record of the op stream before it."""

    at_ns: int
    record: records.Trace


class SegmentLaunched(NamedTuple):
    at_ns: int
    device: int
    stream: int


class SegmentStarted(NamedTuple):
    at_ns: int
    stream: int
    work: int
    """Units that are to be done."""


class SegmentRate(NamedTuple):
    """From now on the stream's segment does so many units of work a nanosecond."""

    at_ns: int
    stream: int
    rate: int


class SegmentEnded(NamedTuple):
    at_ns: int
    stream: int


class NcclLaunched(NamedTuple):
    at_ns: int
    device: int
    stream: int


class NcclStarted(NamedTuple):
    """The kernel is resident, and waits for the other members."""

    at_ns: int
    stream: int


class CollectiveDone(NamedTuple):
    """One of the collectives of the stream's kernel. Its data began to move when the last member had arrived."""

    at_ns: int
    stream: int
    collective: Collective
    begun_ns: int
    last_rank: int


class NcclEnded(NamedTuple):
    at_ns: int
    stream: int


class StreamBlocked(NamedTuple):
    """The stream waits for what another stream had been given when an event was recorded there."""

    at_ns: int
    stream: int
    awaited: int


class StreamUnblocked(NamedTuple):
    at_ns: int
    stream: int


class HostBlocked(NamedTuple):
    at_ns: int
    state: HostState


class HostWoken(NamedTuple):
    at_ns: int


class StepMarked(NamedTuple):
    """The host has ended its next step."""

    at_ns: int


TraceEvent = (
    Entries
    | SegmentLaunched
    | SegmentStarted
    | SegmentRate
    | SegmentEnded
    | NcclLaunched
    | NcclStarted
    | CollectiveDone
    | NcclEnded
    | StreamBlocked
    | StreamUnblocked
    | HostBlocked
    | HostWoken
    | StepMarked
)


class _TracedStreams(Streams):
    __slots__ = ()

    def submit(self, stream: Stream, item: Any) -> None:
        host = stream.device.host
        if host.rank in self._log.traced_ranks:
            if type(item) is Segment:
                self._tell(host, SegmentLaunched(self._now_ns, stream.device.number, stream.id))
            elif type(item) is NcclKernel:
                self._tell(host, NcclLaunched(self._now_ns, stream.device.number, stream.id))
        super().submit(stream, item)

    def _start_segment(self, stream: Stream, segment: Segment, now_ns: int) -> None:
        traced = stream.device.host.rank in self._log.traced_ranks
        if traced:
            work = segment.solo_ns * segment.contended_ns
            self._tell(stream.device.host, SegmentStarted(now_ns, stream.id, work * WORK_UNIT))
        super()._start_segment(stream, segment, now_ns)
        if traced:
            self._tell(stream.device.host, SegmentRate(now_ns, stream.id, stream.rate))

    def _change_rates(self, device: Device) -> None:
        super()._change_rates(device)
        if device.host.rank in self._log.traced_ranks:
            for stream in device.running:
                self._tell(device.host, SegmentRate(self._now_ns, stream.id, stream.rate))

    def _leave(self, stream: Stream, launches: int) -> None:
        host = stream.device.host
        if host.rank in self._log.traced_ranks:
            ended = SegmentEnded if type(stream.items[stream.head]) is Segment else NcclEnded
            self._tell(host, ended(self._now_ns, stream.id))
        super()._leave(stream, launches)

    def _start_kernel(self, kernel: NcclKernel, now_ns: int) -> None:
        super()._start_kernel(kernel, now_ns)
        if kernel.host.rank in self._log.traced_ranks:
            self._tell(kernel.host, NcclStarted(now_ns, kernel.stream.id))

    def await_recording(self, recording: EventRecording, waiter: Stream | Host) -> None:
        super().await_recording(recording, waiter)
        if isinstance(waiter, Stream) and waiter.device.host.rank in self._log.traced_ranks:
            self._tell(waiter.device.host, StreamBlocked(self._now_ns, waiter.id, recording.stream.id))

    def _complete(self, recording: EventRecording, now_ns: int) -> None:
        if recording.stream.device.host.rank in self._log.traced_ranks:
            for waiter in recording.waiters:
                if isinstance(waiter, Stream):
                    self._tell(waiter.device.host, StreamUnblocked(now_ns, waiter.id))
        super()._complete(recording, now_ns)

    @property
    def _now_ns(self) -> int:
        return self._event_queue.now_ns

    def _tell(self, host: Host, event: TraceEvent) -> None:
        self._log.tell(host, event)


class _TracedCollectives(Collectives):
    __slots__ = ()

    def _deliver(self, transfer: Transfer) -> None:
        now_ns, log = self._event_queue.now_ns, self._log
        last = max(transfer.kernels, key=lambda kernel: (kernel.arrived_ns, kernel.host.rank)).host.rank
        for kernel in transfer.kernels:
            if kernel.host.rank in log.traced_ranks and kernel not in transfer.delivered:
                done = CollectiveDone(now_ns, kernel.stream.id, transfer.collective, transfer.begun_ns, last)
                log.tell(kernel.host, done)
        super()._deliver(transfer)


class _TracedHosts(Hosts):
    __slots__ = ()

    def block(self, host: Host, state: HostState, waits_for: Any = None) -> bool:
        if host.rank in self._log.traced_ranks:
            self._log.tell(host, HostBlocked(self._event_queue.now_ns, state))
        return super().block(host, state, waits_for)

    def wake(self, host: Host) -> None:
        if host.rank in self._log.traced_ranks:
            self._log.tell(host, HostWoken(self._event_queue.now_ns))
        super().wake(host)

    def _marker(self, host: Host, record: records.Marker) -> bool:
        if record.marker == MarkerKind.STEP and host.rank in self._log.traced_ranks:
            self._log.tell(host, StepMarked(self._event_queue.now_ns))
        return super()._marker(host, record)

    def _trace(self, host: Host, record: records.Trace) -> bool:
        if host.rank in self._log.traced_ranks:
            self._log.tell(host, Entries(self._event_queue.now_ns, record))
        return True


def start(timeline: Timeline, trace: Trace) -> None:
    """From now on the timeline tells `trace` what happens to its ranks. Its state stays as it is."""
    log = timeline.rollback_log
    log.trace = trace
    log.traced_ranks = trace.ranks
    timeline.streams.__class__ = _TracedStreams
    timeline.collectives.__class__ = _TracedCollectives
    timeline.host_rules.__class__ = _TracedHosts
    timeline.host_rules.set_handlers()
