"""How streams go on: items in order, segments at the rate that the device allows, marks and who waits for them."""

from __future__ import annotations

from phantora_async.virtual_time.entities import (
    NCCL_ITEM,
    NO_SHARES,
    RECORDING_ITEM,
    SEGMENT_ITEM,
    WAIT_ITEM,
    Device,
    EventRecording,
    Host,
    Item,
    NcclKernel,
    StepEnd,
    Stream,
    StreamState,
)
from phantora_async.virtual_time.event_queue import EventQueue
from phantora_async.virtual_time.rollback_log import RollbackLog

KEPT_ITEMS = 256
"""Done items are dropped when there are this many. The list is replaced, because checkpoints may hold it."""


def _set_recording(recording: EventRecording, done_ns: int, waiters: tuple[Stream | Host, ...]) -> None:
    recording.done_ns = done_ns
    recording.waiters[:] = waiters


def _reopen(step: StepEnd, pending: int) -> None:
    step.pending = pending
    step.device_ns = -1
    step.shares = NO_SHARES


class Streams:
    """Drives FIFOs. What becomes possible elsewhere is left in ``arrived`` and ``completed_steps`` for the timeline."""

    __slots__ = ("_event_queue", "_log", "_ready", "arrived", "completed_steps")

    def __init__(self, event_queue: EventQueue, log: RollbackLog) -> None:
        self._event_queue = event_queue
        self._log = log
        self._ready: list[Stream] = []
        self.arrived: list[NcclKernel] = []
        """Launches that reached the head of their stream."""
        self.completed_steps: list[StepEnd] = []

    def submit(self, stream: Stream, item: Item) -> None:
        """Gives an item to the stream now; an idle stream takes it up at once."""
        self.append(stream, item)
        if stream.state == StreamState.IDLE:
            device = stream.device
            device.busy_streams += 1
            if device.since_ns < 0:
                device.since_ns = self._event_queue.now_ns
                device.host.used = (*device.host.used, device)
            self._drive(stream)
            if self._ready:
                self._settle()

    def append(self, stream: Stream, item: Item) -> None:
        stream.items.append(item)
        if self._log.undo is not None:
            self._log.undo.append((stream.items.pop, ()))

    def finish_segment(self, stream: Stream) -> None:
        """The segment at the head is done."""
        device = stream.device
        device.account(self._event_queue.now_ns)
        running = device.running
        device.running = () if len(running) == 1 else tuple(other for other in running if other is not stream)
        self._leave(stream, stream.items[stream.head][1])

    def finish_launch(self, launch: NcclKernel) -> None:
        """The NCCL kernel at the head of its stream is done."""
        stream, now_ns = launch.stream, self._event_queue.now_ns
        device = stream.device
        device.account(now_ns)
        device.resident -= 1
        if not device.resident and device.running:
            self._change_rate(device)
        self._leave(stream, 1)

    def _leave(self, stream: Stream, launches: int) -> None:
        stream.pending -= launches
        stream.head += 1
        if stream.pending <= stream.queue_limit:
            stream.queue_limit = -1
            self._event_queue.woken.append(stream.device.host)
        self._drive(stream)
        if self._ready:
            self._settle()

    def _settle(self) -> None:
        while self._ready:
            self._drive(self._ready.pop())

    def _drive(self, stream: Stream) -> None:
        """The stream's head is free to go on. Streams that this releases wait in ``_ready``, so no chain recurses."""
        items, head = stream.items, stream.head
        count = len(items)
        now_ns = self._event_queue.now_ns
        while head < count:
            item = items[head]
            kind = item[0]
            if kind == SEGMENT_ITEM:
                stream.head = head
                stream.state = StreamState.RUNNING
                self._start_segment(stream, item, now_ns)
                return
            if kind == RECORDING_ITEM:
                self._complete(item[1], now_ns)
            elif kind == WAIT_ITEM:
                if item[1].done_ns < 0:
                    self.remember(item[1])
                    item[1].waiters.append(stream)
                    stream.head = head
                    stream.state = StreamState.BLOCKED
                    return
            elif kind == NCCL_ITEM:
                stream.head = head
                stream.state = StreamState.COLLECTIVE
                self._start_launch(stream.device, item[1], now_ns)
                return
            else:
                step: StepEnd = item[1]
                if self._log.undo is not None:
                    self._log.undo.append((_reopen, (step, step.pending)))
                step.pending -= 1
                if not step.pending:
                    self.completed_steps.append(step)
            head += 1
            if head >= KEPT_ITEMS:
                items = stream.items = items[head:]
                count -= head
                head = 0
        stream.items = []
        stream.head = 0
        stream.state = StreamState.IDLE
        self._drained(stream)

    def remember(self, recording: EventRecording) -> None:
        """Before the mark changes."""
        if self._log.undo is not None:
            self._log.undo.append((_set_recording, (recording, recording.done_ns, tuple(recording.waiters))))

    def _complete(self, recording: EventRecording, now_ns: int) -> None:
        if self._log.undo is not None:
            self.remember(recording)
        recording.done_ns = now_ns
        if recording.waiters:
            for waiter in recording.waiters:
                if isinstance(waiter, Host):
                    self._event_queue.woken.append(waiter)
                else:
                    self._ready.append(waiter)
            recording.waiters.clear()

    def _drained(self, stream: Stream) -> None:
        device = stream.device
        device.busy_streams -= 1
        if stream.drain_waiter:
            stream.drain_waiter = False
            self._event_queue.woken.append(device.host)
        if device.drain_waiter and not device.busy_streams:
            device.drain_waiter = False
            self._event_queue.woken.append(device.host)

    def _start_segment(self, stream: Stream, item: Item, now_ns: int) -> None:
        _, _, solo_ns, contended_ns, floor_ns = item
        device = stream.device
        device.account(now_ns)
        stream.left = solo_ns * contended_ns
        if device.resident:
            stream.rate = solo_ns
            end_ns = now_ns + contended_ns
        else:
            stream.rate = contended_ns
            end_ns = now_ns + solo_ns
        stream.updated_ns = now_ns
        device.running = (*device.running, stream)
        if end_ns > device.busy_until_ns:
            device.busy_until_ns = end_ns
        self._event_queue.push(end_ns if end_ns > floor_ns else floor_ns, stream)

    def _start_launch(self, device: Device, launch: NcclKernel, now_ns: int) -> None:
        device.account(now_ns)
        device.resident += 1
        if device.resident == 1 and device.running:
            self._change_rate(device)
        self.arrived.append(launch)

    def _change_rate(self, device: Device) -> None:
        """The first NCCL kernel came or the last one went: running segments go on at the other rate from now on."""
        now_ns = self._event_queue.now_ns
        latest_ns = now_ns
        for stream in device.running:
            _, _, solo_ns, contended_ns, floor_ns = stream.items[stream.head]
            left = stream.left - stream.rate * (now_ns - stream.updated_ns)
            if left <= 0:
                continue
            stream.left = left
            stream.rate = solo_ns if device.resident else contended_ns
            stream.updated_ns = now_ns
            end_ns = now_ns - (-left // stream.rate)
            if end_ns > latest_ns:
                latest_ns = end_ns
            self._event_queue.push(end_ns if end_ns > floor_ns else floor_ns, stream)
        device.busy_until_ns = latest_ns
