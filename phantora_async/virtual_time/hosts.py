"""What each record does when a rank's host reaches it: the host side of CUDA, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emu import records
from emu.records import MarkerKind, ScopeKind
from phantora_async.failures import ProtocolError
from phantora_async.virtual_time.agenda import Agenda
from phantora_async.virtual_time.collectives import Collectives
from phantora_async.virtual_time.entities import (
    LAUNCH_ITEM,
    MARK_ITEM,
    SEGMENT_ITEM,
    STEP_ITEM,
    WAIT_ITEM,
    Device,
    Host,
    HostState,
    Launch,
    Mark,
    StepMark,
    Stream,
    StreamState,
)
from phantora_async.virtual_time.facts import GatheringFact, LaunchFact
from phantora_async.virtual_time.journal import Journal
from phantora_async.virtual_time.polling import poll_costs_ns
from phantora_async.virtual_time.streams import Streams

Answer = tuple[Host, int, bytes]
"""(who asked, the question's number among the host's facts, encoded record)"""


class Hosts:
    """Handlers by record kind. Each answers whether the host goes on to its next record at this instant.

    What the outside is to be told is left in ``answers``, in the order of virtual time.
    """

    __slots__ = ("_agenda", "_collectives", "_gathered", "_journal", "_queue_depth", "_streams", "answers", "handlers")

    def __init__(
        self, agenda: Agenda, streams: Streams, collectives: Collectives, journal: Journal, queue_depth: int
    ) -> None:
        self._agenda = agenda
        self._streams = streams
        self._collectives = collectives
        self._journal = journal
        self._queue_depth = queue_depth
        self._gathered: dict[object, list[Host]] = {}
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
            records.MARK_DROP: self._mark_drop,
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
        host.clock_ns = self._agenda.now_ns

    def _set_state(self, host: Host, state: HostState) -> None:
        for device in host.used:
            device.account(self._agenda.now_ns)
        host.state = state

    def _stream(self, host: Host, number: int) -> Stream:
        stream = host.streams.get(number)
        if stream is None:
            raise ProtocolError(host.rank, f"stream {number} was never created, or is destroyed")
        return stream

    def _mark(self, host: Host, number: int) -> Mark:
        mark = host.marks.get(number)
        if mark is None:
            raise ProtocolError(host.rank, f"mark {number} was never recorded, or is dropped")
        return mark

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
        was = host.memory.get(record.device, (0, 0, 0))
        now = (record.allocated_peak, record.reserved_peak, record.device_peak)
        peaks = (max(was[0], now[0]), max(was[1], now[1]), max(was[2], now[2]))
        host.memory = host.memory | {record.device: peaks}
        return True

    def _counters(self, host: Host, record: records.Counters) -> bool:
        host.counters = record[4:13]
        return True

    def _marker(self, host: Host, record: records.Marker) -> bool:
        if record.marker == MarkerKind.STEP:
            step = StepMark(host, host.steps, self._agenda.now_ns, host.counters)
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
        floor_ns = self._agenda.now_ns + record.tail_ns
        self._streams.submit(
            stream,
            (SEGMENT_ITEM, launches, solo_ns, contended_ns if contended_ns > solo_ns else solo_ns, floor_ns),
        )
        return True

    def _event_record(self, host: Host, record: records.EventRecord) -> bool:
        stream = host.streams.get(record.stream) or self._stream(host, record.stream)
        number = record.mark
        if number in host.marks:
            raise ProtocolError(host.rank, f"mark {number} recorded twice")
        mark = host.marks[number] = Mark(stream, number)
        if stream.state:
            stream.items.append((MARK_ITEM, mark))
        else:
            mark.done_ns = self._agenda.now_ns
        if record.drop and host.marks.pop(record.drop, None) is None:
            raise ProtocolError(host.rank, f"mark {record.drop} dropped, but was never recorded")
        return True

    def _mark_drop(self, host: Host, record: records.MarkDrop) -> bool:
        if host.marks.pop(record.mark, None) is None:
            raise ProtocolError(host.rank, f"mark {record.mark} dropped, but was never recorded")
        return True

    def _stream_wait(self, host: Host, record: records.StreamWait) -> bool:
        stream = host.streams.get(record.stream) or self._stream(host, record.stream)
        mark = self._mark(host, record.mark)
        if mark.done_ns < 0:
            self._streams.submit(stream, (WAIT_ITEM, mark))
        return True

    def _host_wait(self, host: Host, record: records.HostWait) -> bool:
        if record.scope == ScopeKind.MARK:
            mark = self._mark(host, record.mark)
            if mark.done_ns >= 0:
                return True
            self._streams.remember(mark)
            mark.waiters.append(host)
            host.cursor += 1
            return self.block(host, HostState.WAITS_MARK, mark)
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

    def _nccl_launch(self, host: Host, fact: LaunchFact) -> bool:
        stream = host.streams.get(fact.stream) or self._stream(host, fact.stream)
        if not fact.meetings:
            return True
        if not self._fits(host, stream, 1):
            return False
        stream.pending += 1
        self._streams.submit(stream, (LAUNCH_ITEM, Launch(stream, fact.meetings)))
        return True

    def _comm_destroy(self, host: Host, record: records.CommDestroy) -> bool:
        if record.aborted:
            self._collectives.abandon(host.streams.values(), record.comm)
        return True

    def _gather(self, host: Host, fact: GatheringFact) -> bool:
        gathering = fact.gathering
        came = self._gathered.setdefault(gathering, [])
        came.append(host)
        if self._journal.on:
            self._journal.chapter(host).undo.append((came.remove, (host,)))
            last_ns = max(other.clock_ns for other in came)
            if len(came) == gathering.size and last_ns > self._agenda.now_ns:
                # Who came later in virtual time comes again, and is the last then.
                for other in [other for other in came if other.clock_ns == last_ns]:
                    self._journal.go_back(other, last_ns)
        if len(came) < gathering.size:
            host.cursor += 1
            return self.block(host, HostState.WAITS_GATHERING, gathering)
        del self._gathered[gathering]
        if self._journal.on:
            for other in came:
                self._journal.reach(other).undo.append((self._ungather, (gathering, came, self._agenda.now_ns)))
        self._agenda.woken.extend(other for other in came if other is not host)
        return True

    def _ungather(self, gathering: object, came: list[Host], at_ns: int) -> None:
        """All wait again, for the first of the members that goes back; the others have to."""
        if gathering not in self._gathered:
            self._gathered[gathering] = came
            for host in came:
                self._journal.demand(host, at_ns)

    def gathered(self, gathering: object) -> list[int]:
        """Ranks that wait for the others of the gathering."""
        return [host.rank for host in self._gathered.get(gathering, ())]

    # -- questions ---------------------------------------------------------------------------------------------------

    def _answer(self, host: Host, encoded: bytes) -> None:
        self.answers.append((host, host.forgotten + host.cursor, encoded))

    def _clock_read(self, host: Host, record: records.ClockRead) -> bool:
        if poll_costs_ns(host, self._agenda):
            return False
        self._answer(host, records.Clock.encode(record.qid, self._agenda.now_ns))
        return True

    def _elapsed(self, host: Host, record: records.Elapsed) -> bool:
        start, end = self._mark(host, record.start_mark), self._mark(host, record.end_mark)
        ready = start.done_ns >= 0 and end.done_ns >= 0
        if not ready and poll_costs_ns(host, self._agenda):
            return False
        elapsed_ns = end.done_ns - start.done_ns if ready else 0
        self._answer(host, records.ElapsedNs.encode(record.qid, elapsed_ns, int(ready), 0))
        return True

    def _query(self, host: Host, record: records.Query) -> bool:
        if record.scope == ScopeKind.MARK:
            done = self._mark(host, record.mark).done_ns >= 0
        elif record.scope == ScopeKind.STREAM:
            done = self._stream(host, record.stream).state == StreamState.IDLE
        elif record.scope == ScopeKind.DEVICE:
            device = host.devices.get(record.stream)
            done = device is None or not device.busy_streams
        else:
            raise ProtocolError(host.rank, f"QUERY with scope {record.scope}")
        if not done and poll_costs_ns(host, self._agenda):
            return False
        self._answer(host, records.Done.encode(record.qid, int(done), 0))
        return True
