"""How streams go on: items in order, segments at the rate that the device allows, events and who waits for them.

Segments of several streams of one GPU share it (``profiles.gpu_sharing``).
"""

from __future__ import annotations

from emu.contract import records
from phantora_async.faults.pace import FULL_PACE, NEVER
from phantora_async.virtual_time.announcer import Announcer
from phantora_async.virtual_time.entities import (
    Device,
    EventRecording,
    Host,
    Item,
    NcclKernel,
    Segment,
    StepEnd,
    Stream,
    StreamState,
    Wait,
)
from phantora_async.virtual_time.event_queue import EventQueue
from phantora_async.virtual_time.events import (
    EventReached,
    NcclBegan,
    NcclEnded,
    SegmentBegan,
    SegmentEnded,
    SegmentRate,
    StepDone,
    StreamBlocked,
    StreamUnblocked,
)
from phantora_async.virtual_time.rollback_log import RollbackLog
from profiles.gpu_sharing import WORK_UNIT, rates

PACED_UNIT = WORK_UNIT * FULL_PACE
"""Of a GPU with a pace of its own, whose work is counted in finer units."""
IDLE, RUNNING, BLOCKED, COLLECTIVE = StreamState
"""An attribute of an Enum takes 100 ns in Python 3.11."""
ABORTED = Segment(1, 0, 0, 0, 0)
"""What takes the place of an NCCL kernel that was aborted before its stream came to it."""
KEPT_ITEMS = 256
"""Done items are dropped when there are this many. The list is replaced, because checkpoints may hold it."""


class Streams:
    """Drives streams. The event queue is told what this makes possible at once: ``arrived`` and ``woken``."""

    __slots__ = ("_announcer", "_event_queue", "_heard", "_log", "_ready")

    def __init__(self, event_queue: EventQueue, log: RollbackLog, announcer: Announcer) -> None:
        self._event_queue = event_queue
        self._log = log
        self._announcer = announcer
        self._heard = announcer.heard
        self._ready: list[Stream] = []
        """Blocked streams whose events have completed."""

    def submit(self, stream: Stream, item: Item) -> None:
        """Gives an item to the stream now; an idle stream takes it up at once."""
        stream.items.append(item)
        if self._log.undo is not None:
            self._log.undo.append((stream.items.pop, ()))
        if not stream.state:
            device = stream.device
            device.busy_streams += 1
            if device.since_ns < 0:
                device.host.begin_use(device, self._event_queue.now_ns)
            self._drive(stream)

    def finish_segment(self, stream: Stream) -> None:
        """The segment at the head is done, or its work is and its last launch has not come."""
        segment = stream.items[stream.head]
        assert type(segment) is Segment
        device, now_ns = stream.device, self._event_queue.now_ns
        device.account(now_ns)
        heard = self._heard and device.host.rank in self._heard
        if heard:
            self._tell_changes(stream)
        if now_ns < segment.floor_ns:
            stream.work_left = stream.rate = 0
            stream.updated_ns = now_ns
            self._event_queue.push(segment.floor_ns, stream)
            self._change_rates(device)
            return
        running = device.running
        if len(running) == 1:
            device.running = ()
        else:
            device.running = tuple(other for other in running if other is not stream)
            self._change_rates(device)
        if heard:
            ended = NcclEnded if segment is ABORTED else SegmentEnded
            self._announcer.tell(device.host, ended(now_ns, stream.id))
        self._leave(stream, segment.launches)

    def finish_kernel(self, kernel: NcclKernel) -> None:
        """The NCCL kernel at the head of its stream is done."""
        stream = kernel.stream
        device = stream.device
        device.account(self._event_queue.now_ns)
        device.resident -= 1
        if not device.resident and device.running:
            self._change_rates(device)
        if self._heard and device.host.rank in self._heard:
            self._announcer.tell(device.host, NcclEnded(self._event_queue.now_ns, stream.id))
        self._leave(stream, 1)

    def _leave(self, stream: Stream, launches: int) -> None:
        stream.launches -= launches
        stream.head += 1
        if stream.launches <= stream.queue_limit:
            stream.queue_limit = -1
            self._event_queue.woken.append(stream.device.host)
        self._drive(stream)

    def _drive(self, stream: Stream) -> None:
        """The stream's head is free to go on; then streams that this has released. So no chain of streams recurses."""
        now_ns = self._event_queue.now_ns
        while True:
            items, head = stream.items, stream.head
            count = len(items)
            while head < count:
                item = items[head]
                if type(item) is Segment:
                    stream.state = RUNNING
                    stream.head = head
                    self._start_segment(stream, item, now_ns)
                    break
                if type(item) is EventRecording:
                    self._complete(item, now_ns)
                elif type(item) is Wait:
                    if item.recording.done_ns < 0:
                        stream.state = BLOCKED
                        self.await_recording(item.recording, stream)
                        break
                elif type(item) is NcclKernel:
                    stream.state = COLLECTIVE
                    self._start_kernel(item, now_ns)
                    break
                elif type(item) is StepEnd:
                    self._reach_step_end(item)
                head += 1
            if head == count:
                stream.items = []
                stream.head = 0
                stream.state = IDLE
                self._drained(stream)
            elif head < KEPT_ITEMS:
                stream.head = head
            else:
                stream.items = items[head:]
                stream.head = 0
            if not self._ready:
                return
            stream = self._ready.pop()

    def _drained(self, stream: Stream) -> None:
        device = stream.device
        device.busy_streams -= 1
        if stream.host_waits:
            stream.host_waits = False
            self._event_queue.woken.append(device.host)
        if device.host_waits and not device.busy_streams:
            device.host_waits = False
            self._event_queue.woken.append(device.host)

    # ---- events and ends of steps ----------------------------------------------------------------------------------

    def await_recording(self, recording: EventRecording, waiter: Stream | Host) -> None:
        """The waiter goes on when the recording is complete."""
        if self._log.undo is not None:
            self._log.undo.append((_set_recording, (recording, -1, tuple(recording.waiters))))
        recording.waiters.append(waiter)
        if self._heard and isinstance(waiter, Stream) and waiter.device.host.rank in self._heard:
            blocked = StreamBlocked(self._event_queue.now_ns, waiter.id, recording.stream.id)
            self._announcer.tell(waiter.device.host, blocked)

    def _complete(self, recording: EventRecording, now_ns: int) -> None:
        if self._log.undo is not None:
            self._log.undo.append((_set_recording, (recording, -1, tuple(recording.waiters))))
        recording.done_ns = now_ns
        if recording.waiters:
            if self._heard and recording.stream.device.host.rank in self._heard:
                self._tell_complete(recording, now_ns)
            for waiter in recording.waiters:
                if isinstance(waiter, Host):
                    self._event_queue.woken.append(waiter)
                else:
                    self._ready.append(waiter)
            recording.waiters.clear()

    def _tell_complete(self, recording: EventRecording, now_ns: int) -> None:
        host = recording.stream.device.host
        for waiter in recording.waiters:
            if isinstance(waiter, Host):
                self._announcer.tell(host, EventReached(now_ns, recording.number))
            else:
                self._announcer.tell(host, StreamUnblocked(now_ns, waiter.id))

    def _reach_step_end(self, step: StepEnd) -> None:
        if self._log.undo is not None:
            self._log.undo.append((_reopen_step, (step, step.pending)))
        step.pending -= 1
        if not step.pending:
            self.step_done(step)

    def step_done(self, step: StepEnd) -> None:
        """All work that was enqueued before the step's marker is done now."""
        now_ns, host = self._event_queue.now_ns, step.host
        done = StepDone(now_ns, step.number, step.host_ns, step.counters, host.shares_at(now_ns))
        self._announcer.tell(host, done)

    # ---- what runs on a device -------------------------------------------------------------------------------------

    def _start_segment(self, stream: Stream, segment: Segment, now_ns: int) -> None:
        device = stream.device
        pace = device.pace
        device.account(now_ns)
        stream.work_left = work = segment.solo_ns * segment.contended_ns * (WORK_UNIT if pace is None else PACED_UNIT)
        stream.updated_ns = now_ns
        heard = self._heard and device.host.rank in self._heard
        if heard:
            began = NcclBegan(now_ns, stream.id) if segment is ABORTED else SegmentBegan(now_ns, stream.id, work)
            self._announcer.tell(device.host, began)
        if device.running:
            stream.rate = 0
            device.running = (*device.running, stream)
            if stream.work_left:
                self._change_rates(device)
            else:
                self._event_queue.push(max(now_ns, segment.floor_ns), stream)
        else:
            if device.resident:
                stream.rate = segment.solo_ns * WORK_UNIT
                for_ns = segment.contended_ns
            else:
                stream.rate = segment.contended_ns * WORK_UNIT
                for_ns = segment.solo_ns
            end_ns = now_ns + for_ns if pace is None else pace.lasts(now_ns, for_ns)
            device.running = (stream,)
            if end_ns > device.busy_until_ns:
                device.busy_until_ns = end_ns
            self._event_queue.push(end_ns if end_ns > segment.floor_ns else segment.floor_ns, stream)
        if heard and segment is not ABORTED:
            self._tell_rate(stream)

    def _start_kernel(self, kernel: NcclKernel, now_ns: int) -> None:
        device = kernel.stream.device
        device.account(now_ns)
        device.resident += 1
        if device.resident == 1 and device.running:
            self._change_rates(device)
        if not device.is_dead(now_ns):
            self._event_queue.arrived.append(kernel)
        if self._heard and kernel.host.rank in self._heard:
            self._announcer.tell(kernel.host, NcclBegan(now_ns, kernel.stream.id))

    def _change_rates(self, device: Device) -> None:
        """An NCCL kernel or a segment came or went: running segments that have work left go on at other rates."""
        now_ns = self._event_queue.now_ns
        working, alone, fills = [], [], []
        heard = self._heard and device.host.rank in self._heard
        for stream in device.running:
            left = left_of(stream, now_ns)
            if left <= 0:
                continue
            if heard:
                self._tell_changes(stream)
            segment = stream.items[stream.head]
            assert type(segment) is Segment
            stream.work_left = left
            stream.updated_ns = now_ns
            working.append((stream, segment))
            alone.append((segment.solo_ns if device.resident else segment.contended_ns) * WORK_UNIT)
            fills.append(segment.fill)
        latest_ns = now_ns
        for (stream, segment), rate in zip(working, rates(alone, fills), strict=True):
            stream.rate = rate
            for_ns = -(-stream.work_left // rate)
            end_ns = now_ns + for_ns if device.pace is None else device.pace.end(now_ns, for_ns)
            if end_ns > latest_ns:
                latest_ns = end_ns
            # Others go on faster when its work is done, even if its last launch comes later.
            alone_on_gpu = len(working) == 1
            self._event_queue.push(max(end_ns, segment.floor_ns) if alone_on_gpu else end_ns, stream)
        device.busy_until_ns = latest_ns
        if heard:
            for stream in device.running:
                if stream.items[stream.head] is not ABORTED:
                    self._tell_rate(stream)

    def _tell_rate(self, stream: Stream) -> None:
        """The rate of the running segment from now on."""
        now_ns, pace = self._event_queue.now_ns, stream.device.pace
        rate = stream.rate if pace is None else stream.rate * pace.at(now_ns)
        self._announcer.tell(stream.device.host, SegmentRate(now_ns, stream.id, rate))

    def _tell_changes(self, stream: Stream) -> None:
        """How the GPU's pace has changed the rate since it was told."""
        if stream.device.pace is not None and stream.items[stream.head] is not ABORTED:
            for at_ns, pace in stream.device.pace.changes_within(stream.updated_ns, self._event_queue.now_ns):
                self._announcer.tell(stream.device.host, SegmentRate(at_ns, stream.id, stream.rate * pace))


def left_of(stream: Stream, now_ns: int) -> int:
    """Units of the running segment that are not done; 0 or less if all are."""
    pace, since_ns = stream.device.pace, stream.updated_ns
    return stream.work_left - stream.rate * (now_ns - since_ns if pace is None else pace.done(since_ns, now_ns))


# ---- undo entries --------------------------------------------------------------------------------------------------


def _set_recording(recording: EventRecording, done_ns: int, waiters: tuple[Stream | Host, ...]) -> None:
    recording.done_ns = done_ns
    recording.waiters[:] = waiters


def _reopen_step(step: StepEnd, pending: int) -> None:
    step.pending = pending


def paced_floor_ns(now_ns: int, host: Host, device: Device, record: records.Segment) -> int:
    """The segment's earliest end. The launch from which `tail_ns` is counted comes at the host's pace, the work behind
    it is done at the GPU's.

    Another launch of the segment may then leave less room. It is not known here: the segment ends no earlier than all
    of its work at the GPU's pace.
    """
    after_ns = max(record.tail_ns - record.tail_work_ns, 0)
    launched_ns = now_ns + after_ns if host.pace is None else host.pace.lasts(now_ns, after_ns)
    work_ns = record.tail_ns - after_ns
    return min(launched_ns + work_ns if device.pace is None else device.pace.lasts(launched_ns, work_ns), NEVER)
