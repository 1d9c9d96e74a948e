"""What each record does when a rank's host reaches it: the host side of CUDA, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emu.contract import records
from emu.contract.records import MarkerKind, ScopeKind
from phantora_async.errors import ProtocolError
from phantora_async.virtual_time.collectives import Collectives
from phantora_async.virtual_time.entities import (
    NCCL_ITEM,
    NO_MEMORY,
    RECORDING_ITEM,
    SEGMENT_ITEM,
    STEP_ITEM,
    WAIT_ITEM,
    Device,
    EventRecording,
    Host,
    HostState,
    MemoryPeaks,
    NcclKernel,
    StepEnd,
    Stream,
    StreamState,
)
from phantora_async.virtual_time.event_queue import EventQueue
from phantora_async.virtual_time.facts import CommCreation, CommCreationFact, NcclKernelFact
from phantora_async.virtual_time.polling import poll_costs_ns
from phantora_async.virtual_time.rollback_log import RollbackLog
from phantora_async.virtual_time.streams import Streams

Answer = tuple[Host, int, bytes]
"""(who asked, the question's number among the host's facts, encoded record)"""


class Hosts:
    """Handlers by record kind. Each answers whether the host goes on to its next record at this instant.

    What the outside is to be told is left in ``answers``, in the order of virtual time.
    """

    __slots__ = (
        "_collectives",
        "_event_queue",
        "_queue_depth",
        "_rollback_log",
        "_streams",
        "_waiting_in_creation",
        "answers",
        "handlers",
    )

    def __init__(
        self,
        event_queue: EventQueue,
        streams: Streams,
        collectives: Collectives,
        rollback_log: RollbackLog,
        queue_depth: int,
    ) -> None:
        self._event_queue = event_queue
        self._streams = streams
        self._collectives = collectives
        self._rollback_log = rollback_log
        self._queue_depth = queue_depth
        self._waiting_in_creation: dict[CommCreation, list[Host]] = {}
        self.answers: list[Answer] = []
        on: dict[int, Callable[[Host, Any], bool]] = {
            records.HELLO: self._pass,
            records.WARNING: self._pass,
            records.HOST_ADVANCE: self._pass,
            records.COST: self._pass,
            records.BYE: self._bye,
            records.MEMORY: self._memory,
            records.COUNTERS: self._counters,
            records.MARKER: self._marker,
            records.STREAM_CREATE: self._stream_create,
            records.STREAM_DESTROY: self._stream_destroy,
            records.SEGMENT: self._segment,
            records.EVENT_RECORD: self._event_record,
            records.RECORDING_DROP: self._recording_drop,
            records.STREAM_WAIT: self._stream_wait,
            records.HOST_WAIT: self._host_wait,
            records.NCCL_LAUNCH: self._nccl_launch,
            records.COMM_DESTROY: self._comm_destroy,
            records.COMM_INIT: self._gather,
            records.COMM_SPLIT: self._gather,
            records.CLOCK_READ: self._clock_read,
            records.ELAPSED: self._elapsed,
            records.QUERY: self._query,
        }
        self.handlers = on

    # -- waiting -----------------------------------------------------------------------------------------------------

    def block(self, host: Host, state: HostState, waits_for: Any) -> bool:
        """The host stops here; returns False as the handlers do."""
        self._set_state(host, state)
        host.waits_for = waits_for
        return False

    def wake(self, host: Host) -> None:
        """The host goes on at this instant."""
        self._set_state(host, HostState.RUNNING)
        host.waits_for = None
        host.clock_ns = self._event_queue.now_ns

    def _set_state(self, host: Host, state: HostState) -> None:
        for device in host.used:
            device.account(self._event_queue.now_ns)
        host.state = state

    def _stream(self, host: Host, number: int) -> Stream:
        stream = host.streams.get(number)
        if stream is None:
            raise ProtocolError(host.rank, f"stream {number} was never created, or is destroyed")
        return stream

    def _recording(self, host: Host, number: int) -> EventRecording:
        recording = host.recordings.get(number)
        if recording is None:
            raise ProtocolError(host.rank, f"recording {number} was never made, or is dropped")
        return recording

    def _fits(self, host: Host, stream: Stream, launches: int) -> bool:
        """May the host launch that many more? If not it waits until there is room, or none left for what never fits."""
        if stream.pending + launches <= self._queue_depth or not stream.pending:
            return True
        stream.queue_limit = max(self._queue_depth - launches, 0)
        host.again = True
        return self.block(host, HostState.WAITS_QUEUE, stream)

    # -- life --------------------------------------------------------------------------------------------------------

    def _pass(self, host: Host, record: records.Up) -> bool:
        return True

    def _bye(self, host: Host, record: records.Bye) -> bool:
        host.cursor += 1
        return self.block(host, HostState.FINISHED, None)

    def _memory(self, host: Host, record: records.Memory) -> bool:
        peaks = MemoryPeaks(record.allocated_peak, record.reserved_peak, record.device_peak)
        host.memory = host.memory | {record.device: peaks.largest(host.memory.get(record.device, NO_MEMORY))}
        return True

    def _counters(self, host: Host, record: records.Counters) -> bool:
        host.counters = record
        return True

    def _marker(self, host: Host, record: records.Marker) -> bool:
        if record.marker == MarkerKind.STEP:
            step = StepEnd(host, host.steps, self._event_queue.now_ns, host.counters)
            host.steps += 1
            busy = [stream for stream in host.streams.values() if stream.state != StreamState.IDLE]
            step.pending = len(busy)
            for stream in busy:
                self._streams.submit(stream, (STEP_ITEM, step))
            if not busy:
                self._streams.completed_steps.append(step)
        return True

    # -- streams and events ------------------------------------------------------------------------------------------

    def _stream_create(self, host: Host, record: records.StreamCreate) -> bool:
        if not record.stream or record.stream in host.streams:
            raise ProtocolError(host.rank, f"stream {record.stream} created twice")
        device = host.devices.get(record.device)
        if device is None:
            device = Device(host, record.device)
            host.devices = host.devices | {record.device: device}
        host.streams = host.streams | {record.stream: Stream(device, record.stream, host.rank)}
        return True

    def _stream_destroy(self, host: Host, record: records.StreamDestroy) -> bool:
        stream = self._stream(host, record.stream)
        host.streams = {number: other for number, other in host.streams.items() if other is not stream}
        host.draining = tuple(other for other in (*host.draining, stream) if other.state)
        return True

    def _segment(self, host: Host, record: records.Segment) -> bool:
        stream = host.streams.get(record.stream) or self._stream(host, record.stream)
        launches = record.launches
        if stream.pending + launches > self._queue_depth and not self._fits(host, stream, launches):
            return False
        stream.pending += launches
        solo_ns = record.solo_ns
        contended_ns = record.contended_ns
        floor_ns = self._event_queue.now_ns + record.tail_ns
        self._streams.submit(
            stream,
            (SEGMENT_ITEM, launches, solo_ns, contended_ns if contended_ns > solo_ns else solo_ns, floor_ns),
        )
        return True

    def _event_record(self, host: Host, record: records.EventRecord) -> bool:
        stream = host.streams.get(record.stream) or self._stream(host, record.stream)
        number = record.recording
        if number in host.recordings:
            raise ProtocolError(host.rank, f"recording {number} made twice")
        recording = host.recordings[number] = EventRecording(stream, number)
        if self._rollback_log.undo is not None:
            self._rollback_log.undo.append((host.recordings.pop, (number,)))
        if stream.state:
            self._streams.append(stream, (RECORDING_ITEM, recording))
        else:
            recording.done_ns = self._event_queue.now_ns
        if record.drop:
            self._drop(host, record.drop)
        return True

    def _recording_drop(self, host: Host, record: records.RecordingDrop) -> bool:
        self._drop(host, record.recording)
        return True

    def _drop(self, host: Host, number: int) -> None:
        recording = host.recordings.pop(number, None)
        if recording is None:
            raise ProtocolError(host.rank, f"recording {number} dropped, but was never made")
        if self._rollback_log.undo is not None:
            self._rollback_log.undo.append((host.recordings.__setitem__, (number, recording)))

    def _stream_wait(self, host: Host, record: records.StreamWait) -> bool:
        stream = host.streams.get(record.stream) or self._stream(host, record.stream)
        recording = self._recording(host, record.recording)
        if recording.done_ns < 0:
            self._streams.submit(stream, (WAIT_ITEM, recording))
        return True

    def _host_wait(self, host: Host, record: records.HostWait) -> bool:
        if record.scope == ScopeKind.EVENT:
            recording = self._recording(host, record.recording)
            if recording.done_ns >= 0:
                return True
            self._streams.remember(recording)
            recording.waiters.append(host)
            host.cursor += 1
            return self.block(host, HostState.WAITS_EVENT, recording)
        if record.scope == ScopeKind.STREAM:
            stream = self._stream(host, record.stream)
            if stream.state == StreamState.IDLE:
                return True
            stream.drain_waiter = True
            host.cursor += 1
            return self.block(host, HostState.WAITS_STREAM, stream)
        if record.scope != ScopeKind.DEVICE:
            raise ProtocolError(host.rank, f"HOST_WAIT with scope {record.scope}")
        device = host.devices.get(record.stream)
        if device is None or not device.busy_streams:
            return True
        device.drain_waiter = True
        host.cursor += 1
        return self.block(host, HostState.WAITS_DEVICE, device)

    # -- collectives -------------------------------------------------------------------------------------------------

    def _nccl_launch(self, host: Host, fact: NcclKernelFact) -> bool:
        stream = host.streams.get(fact.stream) or self._stream(host, fact.stream)
        if not fact.collectives:
            return True
        if not self._fits(host, stream, 1):
            return False
        stream.pending += 1
        self._streams.submit(stream, (NCCL_ITEM, NcclKernel(stream, fact.collectives)))
        return True

    def _comm_destroy(self, host: Host, record: records.CommDestroy) -> bool:
        if record.aborted:
            self._collectives.abandon(host.streams.values(), record.comm)
        return True

    def _gather(self, host: Host, fact: CommCreationFact) -> bool:
        creation = fact.creation
        came = self._waiting_in_creation.setdefault(creation, [])
        came.append(host)
        if self._rollback_log.on:
            self._rollback_log.checkpoint(host).undo.append((came.remove, (host,)))
            last_ns = max(other.clock_ns for other in came)
            if len(came) == creation.size and last_ns > self._event_queue.now_ns:
                # Who came later in virtual time comes again, and is the last then.
                for other in [other for other in came if other.clock_ns == last_ns]:
                    self._rollback_log.go_back(other, last_ns)
        if len(came) < creation.size:
            host.cursor += 1
            return self.block(host, HostState.WAITS_COMM_CREATION, creation)
        del self._waiting_in_creation[creation]
        if self._rollback_log.on:
            for other in came:
                self._rollback_log.reach(other).undo.append(
                    (self._undo_creation, (creation, came, self._event_queue.now_ns))
                )
        self._event_queue.woken.extend(other for other in came if other is not host)
        return True

    def _undo_creation(self, creation: CommCreation, came: list[Host], at_ns: int) -> None:
        """All wait again, for the first of the members that goes back; the others have to."""
        if creation not in self._waiting_in_creation:
            self._waiting_in_creation[creation] = came
            for host in came:
                self._rollback_log.demand(host, at_ns)

    def waiting_in_creation(self, creation: CommCreation) -> tuple[int, ...]:
        """Ranks that wait for the others to ask for the communicator."""
        return tuple(host.rank for host in self._waiting_in_creation.get(creation, ()))

    # -- questions ---------------------------------------------------------------------------------------------------

    def _answer(self, host: Host, encoded: bytes) -> None:
        self.answers.append((host, host.facts_done, encoded))

    def _clock_read(self, host: Host, record: records.ClockRead) -> bool:
        if poll_costs_ns(host, self._event_queue):
            return False
        self._answer(host, records.Clock.encode(record.qid, self._event_queue.now_ns))
        return True

    def _elapsed(self, host: Host, record: records.Elapsed) -> bool:
        start, end = self._recording(host, record.start_recording), self._recording(host, record.end_recording)
        ready = start.done_ns >= 0 and end.done_ns >= 0
        if not ready and poll_costs_ns(host, self._event_queue):
            return False
        elapsed_ns = end.done_ns - start.done_ns if ready else 0
        self._answer(host, records.ElapsedNs.encode(record.qid, elapsed_ns, int(ready), 0))
        return True

    def _query(self, host: Host, record: records.Query) -> bool:
        if record.scope == ScopeKind.EVENT:
            done = self._recording(host, record.recording).done_ns >= 0
        elif record.scope == ScopeKind.STREAM:
            done = self._stream(host, record.stream).state == StreamState.IDLE
        elif record.scope == ScopeKind.DEVICE:
            device = host.devices.get(record.stream)
            done = device is None or not device.busy_streams
        else:
            raise ProtocolError(host.rank, f"QUERY with scope {record.scope}")
        if not done and poll_costs_ns(host, self._event_queue):
            return False
        self._answer(host, records.Done.encode(record.qid, int(done), 0))
        return True
