"""A timeline that notes what each interval on a stream or a host had waited for: the graph of a step.

It executes facts that are all known, so nothing is rolled back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from emu.contract import records
from emu.contract.records import MarkerKind
from phantora_async.over_time import parts_for
from phantora_async.virtual_time import Collective, CommCreationFact, NetworkModel, Timeline
from phantora_async.virtual_time.collectives import Collectives
from phantora_async.virtual_time.entities import (
    Device,
    EventRecording,
    Host,
    Item,
    NcclKernel,
    Segment,
    StepEnd,
    Stream,
    Transfer,
)
from phantora_async.virtual_time.hosts import Hosts
from phantora_async.virtual_time.speculation import Speculation
from phantora_async.virtual_time.streams import Streams

OUTSIDE_NBYTES = 0
"""Of a HOST_ADVANCE that no rank has sent: the rank waited where no record tells of it."""


@dataclass(slots=True, eq=False)
class HostRun:
    """The host ran, from when something had woken it until it waited."""

    rank: int
    start_ns: int
    cause: Interval | None
    """What ended at ``start_ns``; None: the first one."""


@dataclass(slots=True, eq=False)
class SegmentRun:
    """A segment was at the head of its stream."""

    rank: int
    start_ns: int
    cause: Interval | None
    """What ended at ``start_ns``, or the host's run that launched the segment then."""
    record: records.Segment
    launcher: HostRun
    end_ns: int = -1
    work_end_ns: int = -1
    """Earlier than ``end_ns`` if the last kernels were launched too late."""


class Moved(NamedTuple):
    """A collective of an NCCL kernel."""

    collective: Collective
    begun_ns: int
    done_ns: int
    last: NcclRun
    """The kernel that arrived last, when data began to move."""


@dataclass(slots=True, eq=False)
class NcclRun:
    """An NCCL kernel was resident, waiting for members or moving data."""

    rank: int
    start_ns: int
    cause: Interval | None
    moved: list[Moved] = field(default_factory=list)
    end_ns: int = -1


Interval = HostRun | SegmentRun | NcclRun


class StepReached(NamedTuple):
    at_ns: int
    cause: Interval
    """What the last stream was waiting for."""


class Recorder:
    """What the parts of the timeline tell."""

    def __init__(self, world_size: int) -> None:
        self.hosts = [HostRun(rank, 0, None) for rank in range(world_size)]
        """Each rank's latest run."""
        self.cause: Interval = self.hosts[0]
        """The interval that the present event ends, or the run of the host that the event belongs to."""
        self.launched: dict[Segment, tuple[records.Segment, HostRun]] = {}
        self.segment_record: records.Segment | None = None
        """The SEGMENT record that is executed now."""
        self.running: dict[Stream, SegmentRun] = {}
        self.last: dict[Stream, Interval] = {}
        """By stream: what ended last on it."""
        self.last_of_rank: dict[int, Interval] = {}
        self.completed: dict[EventRecording, Interval] = {}
        """For each recording that hosts wait for: the interval that ended when it was complete."""
        self.kernels: dict[NcclKernel, NcclRun] = {}
        self.begun: dict[Collective, tuple[int, NcclRun]] = {}
        """When each collective began, and the kernel of its last member."""
        self.steps: dict[tuple[int, int], StepReached] = {}
        """By rank and number."""
        self.outside: dict[int, list[tuple[int, int]]] = {}
        """By rank: when it waited in a socket or for a file."""
        self.segments: list[SegmentRun] = []
        self.nccl: list[NcclRun] = []

    def ended(self, stream: Stream, run: Interval) -> None:
        self.cause = self.last[stream] = self.last_of_rank[run.rank] = run

    def woke(self, host: Host, now_ns: int) -> Interval | None:
        """What the host has waited for."""
        match host.waits_for:
            case Stream() as stream if (run := self.last.get(stream)) and _ended_ns(run) == now_ns:
                return run
            case EventRecording() as recording:
                return self.completed.pop(recording, None)
            case Stream() | Device():
                return self.last_of_rank.get(host.rank)
        return self.cause  # the last host that asked for a communicator


class _Streams(Streams):
    __slots__ = ("_recorder",)

    def __init__(self, timeline: Timeline, recorder: Recorder) -> None:
        super().__init__(timeline.event_queue, timeline.rollback_log)
        self._recorder = recorder

    def submit(self, stream: Stream, item: Item) -> None:
        recorder = self._recorder
        recorder.cause = host = recorder.hosts[stream.device.host.rank]
        if type(item) is Segment:
            assert recorder.segment_record is not None, "a segment without its record"
            recorder.launched[item] = recorder.segment_record, host
        super().submit(stream, item)

    def _start_segment(self, stream: Stream, segment: Segment, now_ns: int) -> None:
        recorder = self._recorder
        launched = recorder.launched.pop(segment, None)
        if launched is not None:  # else it stands for a kernel that was aborted
            run = SegmentRun(stream.device.host.rank, now_ns, recorder.cause, *launched)
            recorder.running[stream] = run
            recorder.segments.append(run)
        super()._start_segment(stream, segment, now_ns)

    def finish_segment(self, stream: Stream) -> None:
        recorder, now_ns = self._recorder, self._event_queue.now_ns
        run, segment = recorder.running.get(stream), stream.items[stream.head]
        if run is not None and isinstance(segment, Segment):
            if run.work_end_ns < 0:
                done_ns = stream.updated_ns - (-stream.work_left // stream.rate) if stream.rate else now_ns
                run.work_end_ns = min(done_ns, now_ns) if segment.solo_ns else run.start_ns
            if now_ns >= segment.floor_ns:
                run.end_ns = now_ns
                recorder.ended(stream, run)
                del recorder.running[stream]
        super().finish_segment(stream)

    def _start_kernel(self, kernel: NcclKernel, now_ns: int) -> None:
        recorder = self._recorder
        run = recorder.kernels[kernel] = NcclRun(kernel.host.rank, now_ns, recorder.cause)
        recorder.nccl.append(run)
        super()._start_kernel(kernel, now_ns)

    def finish_kernel(self, kernel: NcclKernel) -> None:
        recorder = self._recorder
        run = recorder.kernels.pop(kernel)
        run.end_ns = self._event_queue.now_ns
        recorder.ended(kernel.stream, run)
        super().finish_kernel(kernel)

    def _complete(self, recording: EventRecording, now_ns: int) -> None:
        if recording.waiters:
            self._recorder.completed[recording] = self._recorder.cause
        super()._complete(recording, now_ns)

    def _reach_step_end(self, step: StepEnd) -> None:
        super()._reach_step_end(step)
        if not step.pending:
            reached = StepReached(self._event_queue.now_ns, self._recorder.cause)
            self._recorder.steps[step.host.rank, step.number] = reached


class _Collectives(Collectives):
    __slots__ = ("_recorder",)

    def __init__(self, timeline: Timeline, network: NetworkModel, recorder: Recorder) -> None:
        super().__init__(timeline.event_queue, timeline.rollback_log, timeline.streams, timeline.output, network)
        self._recorder = recorder

    def _begin(self, transfer: Transfer) -> None:
        last = max(transfer.kernels, key=lambda kernel: (kernel.arrived_ns, kernel.host.rank))
        recorder = self._recorder
        recorder.begun[transfer.collective] = self._event_queue.now_ns, recorder.kernels[last]
        super()._begin(transfer)

    def _deliver(self, transfer: Transfer) -> None:
        recorder, now_ns = self._recorder, self._event_queue.now_ns
        begun_ns, last = recorder.begun.pop(transfer.collective)
        moved = Moved(transfer.collective, begun_ns, now_ns, last)
        for kernel in transfer.kernels:
            recorder.kernels[kernel].moved.append(moved)
        super()._deliver(transfer)


class _Hosts(Hosts):
    __slots__ = ("_recorder",)

    def __init__(self, timeline: Timeline, queue_depth: int, recorder: Recorder) -> None:
        self._recorder = recorder
        super().__init__(
            timeline.event_queue,
            timeline.rollback_log,
            timeline.streams,
            timeline.collectives,
            timeline.comm_creations,
            timeline.output,
            queue_depth,
            parts_for(len(timeline.hosts)),
        )

    def _pass(self, host: Host, record: records.Up) -> bool:
        if record.kind == records.HOST_ADVANCE and record.nbytes == OUTSIDE_NBYTES:
            now_ns = self._event_queue.now_ns
            self._recorder.outside.setdefault(host.rank, []).append((now_ns - record.host_ns, now_ns))
        return True

    def wake(self, host: Host) -> None:
        recorder, now_ns = self._recorder, self._event_queue.now_ns
        recorder.hosts[host.rank] = HostRun(host.rank, now_ns, recorder.woke(host, now_ns))
        super().wake(host)

    def _segment(self, host: Host, record: records.Segment) -> bool:
        self._recorder.segment_record = record
        return super()._segment(host, record)

    def _comm_creation(self, host: Host, fact: CommCreationFact) -> bool:
        self._recorder.cause = self._recorder.hosts[host.rank]
        return super()._comm_creation(host, fact)

    def _marker(self, host: Host, record: records.Marker) -> bool:
        number = host.steps
        idle = not any(stream.state for stream in host.streams.values())
        if record.marker == MarkerKind.STEP and idle:
            reached = StepReached(self._event_queue.now_ns, self._recorder.hosts[host.rank])
            self._recorder.steps[host.rank, number] = reached
        return super()._marker(host, record)

    def _recording(self, host: Host, number: int) -> EventRecording:
        """One that was made before the facts begin is complete."""
        recording = host.recordings.get(number)
        if recording is None:
            stream = next(iter(host.streams.values()))
            recording = host.recordings[number] = EventRecording(stream, number)
            recording.done_ns = 0
        return recording

    def _drop(self, host: Host, number: int) -> None:
        host.recordings.pop(number, None)


def _ended_ns(run: Interval) -> int:
    return run.start_ns if isinstance(run, HostRun) else run.end_ns


class RecordedTimeline(Timeline):
    """``recorder`` has what happened."""

    def __init__(self, world_size: int, network: NetworkModel, queue_depth: int) -> None:
        super().__init__(world_size, network, queue_depth)
        self.recorder = Recorder(world_size)
        self.streams = _Streams(self, self.recorder)
        self.collectives = _Collectives(self, network, self.recorder)
        self.host_rules = _Hosts(self, queue_depth, self.recorder)
        self.speculation = Speculation(self.hosts, self.event_queue, self.collectives, self.rollback_log, self.output)
