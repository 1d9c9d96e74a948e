"""Makes spans of one rank's trace from the events of virtual time and the entries of its TRACE records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from emu.contract import records
from emu.contract.records import TraceKind
from phantora_async.errors import ProtocolError
from phantora_async.ingest.costs import Costs
from phantora_async.trace.names import call_name
from phantora_async.trace.placement import Launch, Rate, place
from phantora_async.trace.spans import Call, Kernel, MemoryUse, Moved, Nccl, Op, Span, Step, StreamWait, Sync
from phantora_async.virtual_time import events

_SYNCS = (TraceKind.STREAM_WAIT, TraceKind.EVENT_SYNC, TraceKind.STREAM_SYNC, TraceKind.DEVICE_SYNC)


@dataclass(slots=True)
class _Launched:
    """A LAUNCH entry."""

    entry: records.TraceEntry
    external: int
    number: int
    """The number of the entry."""


@dataclass(slots=True)
class _Segment:
    device: int
    launched: list[_Launched]
    at_ns: int
    """The instant of the segment's first launch."""
    work: int = 0
    rates: list[Rate] = field(default_factory=list)


@dataclass(slots=True)
class _NcclKernel:
    device: int
    correlation: int
    external: int
    number: int
    start_ns: int = 0
    moved: list[Moved] = field(default_factory=list)


@dataclass(slots=True)
class _Range:
    """An op that a thread is in."""

    depth: int
    external: int
    text: str
    start_ns: int = -1


@dataclass(slots=True)
class _Batch:
    """The entries of one TRACE record. The instants of some are known only when the segments that follow are launched:
    the host may wait at a segment's first launch, for room in the launch queue.
    """

    at_ns: int
    todo: list[tuple[Any, Any, int]]
    """The entries to handle, in order: (entry, its range or the number of the op around it, the entry's number)."""
    awaited: set[int]
    """The streams whose segments come next."""
    delays: list[tuple[int, int]] = field(default_factory=list)
    """The waits of the host: (host time of a first launch, how long the host waited there)."""

    def instant(self, at_ns: int, ends_here: bool = False) -> int:
        """The instant of a host time. `ends_here`: what ends at a first launch ends after the wait there; else it ends
        before.
        """
        waited = sum(for_ns for from_ns, for_ns in self.delays if from_ns < at_ns or (ends_here and from_ns == at_ns))
        return self.at_ns + at_ns + waited


class Placed(NamedTuple):
    """The place of an entry in virtual time."""

    number: int
    """The entry's number, as the rank's process counts."""
    start_ns: int
    end_ns: int
    gpu: Kernel | Nccl | None = None


class RankTrace:
    """Makes the spans: ``tell`` it the events in order. Spans go to `emit`, each once it is complete; if the rank's
    script runs a profiler, the places of its entries go to `place`.
    """

    def __init__(
        self,
        rank: int,
        costs: Costs,
        names: dict[int, str],
        emit: Callable[[Span], None],
        place: Callable[[Placed], None],
    ) -> None:
        self._rank = rank
        self._costs = costs
        self._names = names
        self._emit = emit
        self._place = place
        self._profiled = False
        self._externals = 0
        self._ranges: dict[int, list[_Range]] = {}
        """The ranges that each thread is in, outermost first."""
        self._batch: _Batch | None = None
        self._launched: dict[int, list[_Launched]] = {}
        """The launches of the segment that comes next, by stream."""
        self._segments: dict[int, deque[_Segment]] = {}
        self._nccl_entries: dict[int, deque[tuple[records.TraceEntry, int, int]]] = {}
        self._nccl: dict[int, deque[_NcclKernel]] = {}
        self._blocked: dict[int, tuple[int, int]] = {}
        """The streams that wait for an event, each with the instant since when, and the stream that it waits for."""
        self._devices: dict[int, int] = {}
        self._held: Call | None = None
        self._held_number = 0
        """The number of the last call, which is held back: if the host waits now, the call ends later."""
        self._held_sync: Sync | None = None
        """The wait of the last call, by which the host or a stream waits."""
        self._host_blocked_ns = -1
        self._steps = 0
        self._step_from_ns = 0
        self._handlers: dict[type, Callable[[Any], None]] = {
            events.TraceSaid: self._entries,
            events.StreamCreated: self._stream_created,
            events.SegmentLaunched: self._segment_launched,
            events.SegmentBegan: self._segment_started,
            events.SegmentRate: self._segment_rate,
            events.SegmentEnded: self._segment_ended,
            events.NcclLaunched: self._nccl_launched,
            events.NcclBegan: self._nccl_started,
            events.CollectiveDone: self._collective_done,
            events.NcclEnded: self._nccl_ended,
            events.StreamBlocked: self._stream_blocked,
            events.StreamUnblocked: self._stream_unblocked,
            events.HostBlocked: self._host_blocked,
            events.HostWoken: self._host_woken,
            events.StepMarked: self._step_marked,
            events.Restarted: self._restarted,
        }

    def tell(self, event: events.Event) -> None:
        """Handles an event. Raises ProtocolError for entries that no working hook sends."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def close(self) -> None:
        """Ends the trace, because the rank or the run has ended: what is known of unfinished calls is written."""
        self._settle()
        self._release_call()

    # ---- entries ---------------------------------------------------------------------------------------------------

    def _entries(self, event: events.TraceSaid) -> None:
        self._settle()
        self._release_call()
        self._nccl_entries.clear()  # those left belong to kernels that took part in nothing
        record = event.record
        try:
            entries = records.TraceEntry.decode_all(record.payload, 0, record.entries)
        except records.RecordError as error:
            raise ProtocolError(self._rank, str(error)) from None
        self._profiled = bool(record.profiled)
        todo: list[tuple[Any, Any, int]] = []
        awaited: set[int] = set()
        for number, entry in enumerate(entries, record.first):
            ranges = self._ranges.setdefault(entry.thread, [])
            external = ranges[-1].external if ranges else 0
            match entry.what:
                case TraceKind.RANGE:
                    self._externals += 1
                    begun = _Range(entry.number, self._externals, self._names.get(entry.key, "?"))
                    ranges.append(begun)
                    todo.append((entry, begun, number))
                case TraceKind.RANGE_END:
                    while ranges and ranges[-1].depth > entry.number:
                        ranges.pop()
                    if ranges and ranges[-1].depth == entry.number:
                        todo.append((entry, ranges.pop(), number))
                case TraceKind.LAUNCH:
                    if entry.key:
                        self._costs.check(self._rank, entry.key)
                    self._launched.setdefault(entry.number, []).append(_Launched(entry, external, number))
                    awaited.add(entry.number)
                case TraceKind.NCCL:
                    self._nccl_entries.setdefault(entry.number, deque()).append((entry, external, number))
                case _:
                    todo.append((entry, external, number))
        self._batch = _Batch(event.at_ns, todo, awaited)
        # Without launches no instant depends on waits of the host at a launch: the batch is complete.
        if not awaited:
            self._settle()

    def _settle(self) -> None:
        """Writes the batch, whose instants are known now."""
        batch, self._batch = self._batch, None
        if batch is None:
            return
        for entry, around, number in batch.todo:
            at_ns = batch.instant(entry.at_ns)
            if entry.what in _SYNCS:
                self._sync(entry, at_ns)
            elif self._held is not None and self._held.thread == entry.thread:
                self._release_call()  # the thread has gone on: the call has ended
            if self._profiled and entry.what != TraceKind.CALL:
                self._place(Placed(number, at_ns, at_ns))
            if entry.what == TraceKind.RANGE:
                around.start_ns = at_ns
            elif entry.what == TraceKind.RANGE_END:
                self._range_ended(entry.thread, around, at_ns)
            elif entry.what == TraceKind.MEMORY:
                self._emit(MemoryUse(entry.number, at_ns, entry.key, entry.value))
            elif entry.what == TraceKind.CALL:
                self._release_call()
                end_ns = batch.instant(entry.at_ns + entry.value, ends_here=True)
                name = call_name(self._names.get(entry.key, "?").partition("\n")[0], entry.number)
                self._held_number = number
                self._held = Call(entry.thread, at_ns, end_ns, name, entry.correlation, around)

    def _range_ended(self, thread: int, ended: _Range, at_ns: int) -> None:
        if ended.start_ns < 0:
            return
        name, _, sizes = ended.text.partition("\n")
        self._emit(Op(thread, ended.start_ns, at_ns, name, sizes, ended.external, not ended.depth))

    def _sync(self, entry: records.TraceEntry, at_ns: int) -> None:
        """Makes the span of a wait. If the last call waits, the span is complete when that call has ended."""
        kind, stream, recorded = TraceKind(entry.what), entry.number, entry.key > 0
        device = stream if kind == TraceKind.DEVICE_SYNC else self._devices.get(stream, 0)
        sync = Sync(
            kind,
            device,
            stream if kind in (TraceKind.STREAM_WAIT, TraceKind.STREAM_SYNC) else -1,
            at_ns,
            at_ns,
            entry.correlation,
            entry.key,
            entry.value & 0xFFFFFFFF if recorded else -1,
            entry.value >> 32 or -1,
        )
        if self._held is not None and self._held.correlation == entry.correlation:
            self._held_sync = sync
        else:
            self._emit(sync)

    def _release_call(self) -> None:
        if self._held is not None:
            self._emit(self._held)
            if self._held_sync is not None:
                self._emit(self._held_sync._replace(start_ns=self._held.start_ns, end_ns=self._held.end_ns))
                self._held_sync = None
            if self._profiled:
                self._place(Placed(self._held_number, self._held.start_ns, self._held.end_ns))
            self._held = None

    def _stream_created(self, event: events.StreamCreated) -> None:
        self._devices[event.stream] = event.device

    # ---- segments --------------------------------------------------------------------------------------------------

    def _segment_launched(self, event: events.SegmentLaunched) -> None:
        launched = self._launched.pop(event.stream, [])
        self._segments.setdefault(event.stream, deque()).append(_Segment(event.device, launched, event.at_ns))
        batch = self._batch
        if batch is None or not launched:
            return
        first_ns = launched[0].entry.at_ns
        waited_ns = event.at_ns - batch.instant(first_ns, ends_here=True)
        if waited_ns > 0:
            batch.delays.append((first_ns, waited_ns))
        batch.awaited.discard(event.stream)
        if not batch.awaited:
            self._settle()

    def _segment(self, stream: int) -> _Segment | None:
        """The segment at the stream's head; None if it was launched before the trace began."""
        segments = self._segments.get(stream)
        return segments[0] if segments else None

    def _segment_started(self, event: events.SegmentBegan) -> None:
        segment = self._segment(event.stream)
        if segment is not None:
            segment.work = event.work
            segment.rates = []

    def _segment_rate(self, event: events.SegmentRate) -> None:
        segment = self._segment(event.stream)
        if segment is not None:
            segment.rates.append(Rate(event.at_ns, event.rate))

    def _segment_ended(self, event: events.SegmentEnded) -> None:
        segments = self._segments.get(event.stream)
        if not segments:
            return
        segment = segments.popleft()
        if not segment.launched or not segment.rates:
            return
        first_ns = segment.launched[0].entry.at_ns
        launches = [
            Launch(segment.at_ns + launched.entry.at_ns - first_ns, launched.entry.value)
            for launched in segment.launched
        ]
        for launched, (start_ns, end_ns) in zip(
            segment.launched, place(launches, segment.work, segment.rates, event.at_ns), strict=True
        ):
            entry = launched.entry
            if entry.key:
                # Without the gap behind it.
                solo_ns = self._costs.priced(entry.key).cost.solo_ns
                end_ns = start_ns + (end_ns - start_ns) * solo_ns // max(entry.value, 1)
                where = segment.device, event.stream, start_ns, end_ns
                kernel = Kernel(*where, entry.key, entry.correlation, launched.external)
                self._emit(kernel)
                if self._profiled:
                    self._place(Placed(launched.number, start_ns, end_ns, kernel))

    # ---- NCCL ------------------------------------------------------------------------------------------------------

    def _nccl_launched(self, event: events.NcclLaunched) -> None:
        entries = self._nccl_entries.get(event.stream)
        correlation, external, number = 0, 0, -1
        if entries:
            entry, external, number = entries.popleft()
            correlation = entry.correlation
        self._nccl.setdefault(event.stream, deque()).append(_NcclKernel(event.device, correlation, external, number))

    def _nccl_started(self, event: events.NcclBegan) -> None:
        kernels = self._nccl.get(event.stream)
        if kernels:
            kernels[0].start_ns = event.at_ns

    def _collective_done(self, event: events.CollectiveDone) -> None:
        kernels = self._nccl.get(event.stream)
        if kernels:
            kernels[0].moved.append(Moved(event.collective, event.begun_ns, event.at_ns, event.last_rank))

    def _nccl_ended(self, event: events.NcclEnded) -> None:
        kernels = self._nccl.get(event.stream)
        if kernels:
            it = kernels.popleft()
            where = it.device, event.stream, it.start_ns, event.at_ns
            kernel = Nccl(*where, tuple(it.moved), it.correlation, it.external)
            self._emit(kernel)
            if self._profiled and it.number >= 0:
                self._place(Placed(it.number, it.start_ns, event.at_ns, kernel))

    # ---- waits and steps -------------------------------------------------------------------------------------------

    def _stream_blocked(self, event: events.StreamBlocked) -> None:
        self._blocked[event.stream] = event.at_ns, event.awaited

    def _stream_unblocked(self, event: events.StreamUnblocked) -> None:
        blocked = self._blocked.pop(event.stream, None)
        if blocked is not None and blocked[0] < event.at_ns:
            device = self._devices.get(event.stream, 0)
            self._emit(StreamWait(device, event.stream, blocked[0], event.at_ns, blocked[1]))

    def _host_blocked(self, event: events.HostBlocked) -> None:
        self._host_blocked_ns = event.at_ns

    def _host_woken(self, event: events.HostWoken) -> None:
        held = self._held
        if held is not None and held.end_ns == self._host_blocked_ns:
            self._held = held._replace(end_ns=event.at_ns)

    def _step_marked(self, event: events.StepMarked) -> None:
        self._steps += 1
        self._emit(Step(self._steps, self._step_from_ns, event.at_ns))
        self._step_from_ns = event.at_ns

    def _restarted(self, event: events.Restarted) -> None:
        """Closes the trace of the former process. Its unfinished work has no end and is dropped."""
        self.close()
        for of_former in (
            self._ranges,
            self._launched,
            self._segments,
            self._nccl_entries,
            self._nccl,
            self._blocked,
            self._devices,
        ):
            of_former.clear()
        self._host_blocked_ns = -1
