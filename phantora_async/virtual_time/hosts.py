"""What each fact does when a rank's host reaches it: the host side of CUDA, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emu.contract import records
from emu.contract.records import MarkerKind, ScopeKind
from phantora_async.errors import ProtocolError
from phantora_async.faults.pace import NO_PACES, Paces
from phantora_async.over_time import LEAST_PARTS, MemoryChange, Samples
from phantora_async.virtual_time import events, host_waits
from phantora_async.virtual_time.announcer import Announcer
from phantora_async.virtual_time.collectives import Collectives
from phantora_async.virtual_time.comm_creations import CommCreations
from phantora_async.virtual_time.entities import (
    NO_COUNTERS,
    NO_MEMORY,
    Device,
    EventRecording,
    Host,
    HostState,
    MemoryLimit,
    MemoryPeaks,
    NcclKernel,
    Segment,
    StepEnd,
    Stream,
    Wait,
)
from phantora_async.virtual_time.entities.repetition import REPEATED
from phantora_async.virtual_time.event_queue import EventQueue
from phantora_async.virtual_time.facts import (
    OPENS,
    OUTSIDE,
    UNSEEN,
    CommCreationFact,
    NcclKernelFact,
    OpensFact,
    OutsideFact,
    UnseenFact,
)
from phantora_async.virtual_time.output import Output
from phantora_async.virtual_time.polls import delay_poll, turns_of
from phantora_async.virtual_time.repetition.rules import Repetitions
from phantora_async.virtual_time.restart import total
from phantora_async.virtual_time.rollback_log import RollbackLog
from phantora_async.virtual_time.streams import Streams, paced_floor_ns
from profiles.gpu_sharing import fill_of


class Hosts:
    """``handlers`` by the fact's kind. Each returns whether the host goes on to its next fact at this instant.

    A handler that blocks the host moves the cursor on itself, unless the fact is to be executed once more.
    """

    __slots__ = (
        "_announcer",
        "_collectives",
        "_comm_creations",
        "_event_queue",
        "_heard",
        "_log",
        "_output",
        "_paces",
        "_parts",
        "_queue_depth",
        "_streams",
        "handlers",
        "memory_limit",
        "repetitions",
    )

    def __init__(
        self,
        event_queue: EventQueue,
        log: RollbackLog,
        streams: Streams,
        collectives: Collectives,
        comm_creations: CommCreations,
        output: Output,
        announcer: Announcer,
        queue_depth: int,
        parts: int = LEAST_PARTS,
        paces: Paces = NO_PACES,
    ) -> None:
        """`parts`: of time, of which it is noted what devices did."""
        self._paces = paces
        self._event_queue = event_queue
        self._log = log
        self._streams = streams
        self._collectives = collectives
        self._comm_creations = comm_creations
        self._output = output
        self._announcer = announcer
        self._heard = announcer.heard
        self._queue_depth = queue_depth
        self._parts = parts
        self.memory_limit: MemoryLimit | None = None
        self.handlers: dict[int, Callable[[Host, Any], bool]] = {
            records.HELLO: self._pass,
            records.WARNING: self._pass,
            records.HOST_ADVANCE: self._pass,
            records.COST: self._pass,
            records.TRACE: self._trace,
            records.BYE: self._bye,
            records.STEPS_DONE: self._hold,
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
            records.COMM_INIT: self._comm_creation,
            records.COMM_SPLIT: self._comm_creation,
            records.CLOCK_READ: self._clock_read,
            records.ELAPSED: self._elapsed,
            records.QUERY: self._query,
            UNSEEN: self._unseen,
            OUTSIDE: self._outside,
            OPENS: self._opens,
        }
        self.repetitions = Repetitions(event_queue, log, self._heard, self.handlers)
        self.handlers[REPEATED] = self.repetitions.execute

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def block(self, host: Host, state: HostState, waits_for: Any = None) -> bool:
        """The host stops here. Returns False, as the handler does that calls it."""
        if self._heard and host.rank in self._heard:
            self._announcer.tell(host, events.HostBlocked.of(self._event_queue.now_ns, state, waits_for))
        self._set_state(host, state)
        host.waits_for = waits_for
        return False

    def wake(self, host: Host) -> None:
        """The host goes on at this instant."""
        if self._heard and host.rank in self._heard:
            self._announcer.tell(host, events.HostWoken(self._event_queue.now_ns))
        self._set_state(host, HostState.RUNNING)
        host.waits_for = None
        host.clock_ns = self._event_queue.now_ns
        self._event_queue.push(host.next_ns(), host)

    def _set_state(self, host: Host, state: HostState) -> None:
        for device in host.used:
            device.account(self._event_queue.now_ns)
        host.state = state

    def _fits(self, host: Host, stream: Stream, launches: int) -> bool:
        """Is there room for so many launches? If not, the host waits for it: for an empty stream if they never fit."""
        if stream.launches + launches <= self._queue_depth or not stream.launches:
            return True
        if stream.device.is_dead(self._event_queue.now_ns):
            stream.queue_limit = -1
            return self._goes_on(host)
        stream.queue_limit = max(self._queue_depth - launches, 0)
        self._event_queue.push_at_death(host, stream.device)
        host.retry = True
        return self.block(host, HostState.WAITS_QUEUE, stream)

    # ---- the program -----------------------------------------------------------------------------------------------

    def _pass(self, host: Host, record: records.Up) -> bool:
        return True

    def _trace(self, host: Host, record: records.Trace) -> bool:
        self._announcer.tell(host, events.TraceSaid(self._event_queue.now_ns, record))
        return True

    def _unseen(self, host: Host, fact: UnseenFact) -> bool:
        self._announcer.tell(host, events.UnseenPassed(self._event_queue.now_ns, fact.host_ns))
        return True

    def _bye(self, host: Host, record: records.Bye) -> bool:
        host.cursor += 1
        return self.block(host, HostState.FINISHED)

    def _hold(self, host: Host, record: records.Up) -> bool:
        host.cursor += 1
        return self.block(host, HostState.HELD)

    def _memory(self, host: Host, record: records.Memory) -> bool:
        peaks = MemoryPeaks(record.allocated_peak, record.reserved_peak, record.device_peak)
        peaks = peaks.largest(host.memory.get(record.device, NO_MEMORY))
        host.memory = host.memory | {record.device: peaks}
        told = peaks.allocated, peaks.reserved
        host.memory_change = MemoryChange(host.memory_change, self._event_queue.now_ns, record.device, *told)
        return True

    def _counters(self, host: Host, record: records.Counters) -> bool:
        host.counters = record if host.counted is NO_COUNTERS else total(host.counted, record)
        return True

    def _marker(self, host: Host, record: records.Marker) -> bool:
        if record.marker == MarkerKind.STEP:
            self._announcer.tell(host, events.StepMarked(self._event_queue.now_ns))
            step = StepEnd(host, host.steps, self._event_queue.now_ns, host.counters)
            host.steps += 1
            busy = [stream for stream in host.ordered_streams() if stream.state]
            step.pending = len(busy)
            for stream in busy:
                self._streams.submit(stream, step)
            if not busy:
                self._streams.step_done(step)
            if self.memory_limit is not None and self.memory_limit.ends(host):
                return self._hold(host, record)
        return True

    # ---- recorded runs, which are simulated in order ---------------------------------------------------------------

    def _outside(self, host: Host, fact: OutsideFact) -> bool:
        if fact.gate is None:
            if host.state == HostState.PASSED_OVER:
                self._set_state(host, HostState.RUNNING)
                return True
            self._set_state(host, HostState.PASSED_OVER)
            host.retry = True
            host.clock_ns += fact.for_ns
            self._event_queue.push(host.clock_ns, host)
            return False
        if fact.gate.open:
            return True
        fact.gate.waiting.append(host)
        host.cursor += 1
        return self.block(host, HostState.PASSED_OVER)

    def _opens(self, host: Host, fact: OpensFact) -> bool:
        fact.gate.open = True
        self._event_queue.woken.extend(fact.gate.waiting)
        return True

    # ---- streams and events ----------------------------------------------------------------------------------------

    def _stream_create(self, host: Host, record: records.StreamCreate) -> bool:
        if not record.stream or record.stream in host.streams:
            raise ProtocolError(host.rank, f"stream {record.stream} created twice")
        device = host.devices.get(record.device)
        if device is None:
            device = Device(host, record.device, self._paces.devices.get((host.rank, record.device)))
            device.samples = Samples(self._parts)
            host.devices = host.devices | {record.device: device}
        host.streams[record.stream] = Stream(device, record.stream, host.rank)
        if self._log.undo is not None:
            self._log.undo.append((_uncreate_stream, (host, record.stream)))
        self._announcer.tell(host, events.StreamCreated(self._event_queue.now_ns, device.number, record.stream))
        return True

    def _stream_destroy(self, host: Host, record: records.StreamDestroy) -> bool:
        stream = host.stream(record.stream)
        del host.streams[record.stream]
        if self._log.undo is not None:
            self._log.undo.append((host.streams.__setitem__, (record.stream, stream)))
        host.draining = tuple(other for other in (*host.draining, stream) if other.state)
        return True

    def _segment(self, host: Host, record: records.Segment) -> bool:
        stream = host.streams.get(record.stream) or host.stream(record.stream)
        launches = record.launches
        if stream.launches + launches > self._queue_depth and not self._fits(host, stream, launches):
            return False
        stream.launches += launches
        solo_ns, contended_ns = record.solo_ns, max(record.contended_ns, record.solo_ns)
        floor_ns = self._event_queue.now_ns + record.tail_ns
        if host.pace is not None or stream.device.pace is not None:
            floor_ns = paced_floor_ns(self._event_queue.now_ns, host, stream.device, record)
        segment = Segment(launches, solo_ns, contended_ns, floor_ns, fill_of(solo_ns, contended_ns))
        if self._heard and host.rank in self._heard:
            launched = events.SegmentLaunched(self._event_queue.now_ns, stream.device.number, stream.id, record)
            self._announcer.tell(host, launched)
        self._streams.submit(stream, segment)
        return True

    def _event_record(self, host: Host, record: records.EventRecord) -> bool:
        stream = host.streams.get(record.stream) or host.stream(record.stream)
        number = record.recording
        if number in host.recordings:
            raise ProtocolError(host.rank, f"recording {number} made twice")
        recording = host.recordings[number] = EventRecording(stream, number)
        if self._log.undo is not None:
            self._log.undo.append((host.recordings.pop, (number,)))
        if stream.state:
            self._streams.submit(stream, recording)
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
        if self._log.undo is not None:
            self._log.undo.append((host.recordings.__setitem__, (number, recording)))

    def _stream_wait(self, host: Host, record: records.StreamWait) -> bool:
        stream = host.streams.get(record.stream) or host.stream(record.stream)
        recording = host.recording(record.recording)
        if recording.done_ns < 0:
            self._streams.submit(stream, Wait(recording))
        return True

    def _host_wait(self, host: Host, record: records.HostWait) -> bool:
        awaited = host_waits.awaited(host, record)
        if awaited is None:
            return True
        if awaited.device.is_dead(self._event_queue.now_ns):
            return self._goes_on(host)
        host_waits.begin(host, awaited.what, self._streams)
        if self._event_queue.push_at_death(host, awaited.device):
            host.retry = True
        else:
            host.cursor += 1
        return self.block(host, awaited.state, awaited.what)

    def _goes_on(self, host: Host) -> bool:
        """The host's GPU is dead: it waits no more."""
        if host.waits_for is not None:
            host_waits.end(host, self._log)
            self._set_state(host, HostState.RUNNING)
            host.waits_for = None
        return True

    # ---- NCCL ------------------------------------------------------------------------------------------------------

    def _nccl_launch(self, host: Host, fact: NcclKernelFact) -> bool:
        stream = host.streams.get(fact.stream) or host.stream(fact.stream)
        if not fact.collectives:
            return True
        if not self._fits(host, stream, 1):
            return False
        stream.launches += 1
        if self._heard and host.rank in self._heard:
            self._announcer.tell(host, events.NcclLaunched(self._event_queue.now_ns, stream.device.number, stream.id))
        self._streams.submit(stream, NcclKernel(stream, fact.collectives))
        return True

    def _comm_destroy(self, host: Host, record: records.CommDestroy) -> bool:
        if record.aborted:
            self._collectives.abort(host.ordered_streams(), record.comm)
        return True

    def _comm_creation(self, host: Host, fact: CommCreationFact) -> bool:
        self._announcer.tell(host, events.CommAsked(self._event_queue.now_ns))
        if self._comm_creations.arrive(host, fact.creation):
            return True
        host.cursor += 1
        return self.block(host, HostState.WAITS_COMM_CREATION, fact.creation)

    # ---- questions -------------------------------------------------------------------------------------------------

    def _clock_read(self, host: Host, record: records.ClockRead) -> bool:
        if delay_poll(host, self._event_queue):
            return False
        self._output.answer(host, records.Clock.encode(record.qid, self._event_queue.now_ns))
        return True

    def _elapsed(self, host: Host, record: records.Elapsed) -> bool:
        start, end = host.recording(record.start_recording), host.recording(record.end_recording)
        ready = start.done_ns >= 0 and end.done_ns >= 0
        if not ready and delay_poll(host, self._event_queue):
            return False
        elapsed_ns = end.done_ns - start.done_ns if ready else 0
        self._output.answer(host, records.ElapsedNs.encode(record.qid, elapsed_ns, int(ready), 0))
        return True

    def _query(self, host: Host, record: records.Query) -> bool:
        done = self._is_done(host, record)
        if record.turns:
            return self._turns(host, record, done)
        if not done and not record.since_ns and delay_poll(host, self._event_queue):
            return False
        self._output.answer(host, records.Done.encode(record.qid, int(done), 1))
        return True

    def _is_done(self, host: Host, record: records.Query) -> bool:
        if record.scope == ScopeKind.EVENT:
            done_ns = host.recording(record.recording).done_ns
            return bool(0 <= done_ns <= self._event_queue.now_ns - record.since_ns)
        if record.scope == ScopeKind.STREAM:
            return not host.stream(record.stream).state
        if record.scope == ScopeKind.DEVICE:
            device = host.devices.get(record.stream)
            return device is None or not device.busy_streams
        raise ProtocolError(host.rank, f"QUERY with scope {record.scope}")

    def _turns(self, host: Host, record: records.Query, done: bool) -> bool:
        """A loop's questions: waits until the work is done or the turns are over, whichever comes first, and then for
        the turn in which the loop finds out."""
        now_ns = self._event_queue.now_ns
        if host.turns is None:
            host.turns = turns_of(record, now_ns)
        turns = host.turns
        if host.waits_for is not None:  # the turns are over
            host_waits.end(host, self._log)
            self._set_state(host, HostState.RUNNING)
            host.waits_for = None
        number = turns.asked_by(now_ns) if done else turns.most
        until_ns = turns.at_ns(number)
        if until_ns <= now_ns:
            host.turns = None
            self._output.answer(host, records.Done.encode(record.qid, int(done), number))
            return True
        host.retry = True
        self._event_queue.push(until_ns, host)
        awaited = None if done else host_waits.awaited(host, record)
        if awaited is None or awaited.device.is_dead(now_ns):
            host.clock_ns = until_ns
            return False
        host_waits.begin(host, awaited.what, self._streams)
        return self.block(host, awaited.state, awaited.what)


# ---- undo entries --------------------------------------------------------------------------------------------------


def _uncreate_stream(host: Host, number: int) -> None:
    host.streams.pop(number).due = None  # its event must not come: nobody restores a stream that is gone
