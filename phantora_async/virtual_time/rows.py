"""Turns facts of a live rank into rows, as the engine executes them: ``native/engine.h`` says what each kind holds."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from emu.contract import records
from phantora_async.virtual_time.facts import SLEEP_NBYTES, UNSEEN, Collective, CommCreation
from phantora_async.virtual_time.native import binding
from phantora_async.virtual_time.states import NO_COUNTERS, total

ROW_LAYOUT = struct.Struct("<HHIQ6Q")
"""The layout of a row, here and in a recording: kind, site, stream, host time, and six values."""
_PACK = ROW_LAYOUT.pack
assert ROW_LAYOUT.size == binding.ROW_NBYTES


def segment_row(fact: records.Segment, site: int) -> bytes:
    """The row of a segment, which has the same values wherever it is written."""
    return _PACK(
        fact.kind,
        site,
        fact.stream,
        fact.host_ns,
        fact.launches,
        fact.solo_ns,
        fact.contended_ns,
        fact.tail_ns,
        fact.tail_work_ns,
        fact.content,
    )


class RowWriter:
    """Writes the rows of one rank. Data that rows cannot hold is kept here by number: counters, and texts of traces."""

    def __init__(self, number_of: Callable[[Collective], int], creation_of: Callable[[CommCreation], int]) -> None:
        self.counters: dict[int, records.Counters] = {}
        """The totals since the run's start, by the number of COUNTERS until then. ``forget`` drops those that no step
        will need.
        """
        self.traces: dict[int, records.Trace] = {}
        self._counted = self._traced = 0
        self._before = NO_COUNTERS
        """The counts of former processes."""
        self._joined: list[int] = []
        self._number_of = number_of
        self._creation_of = creation_of
        self._writers: dict[int, Callable[[Any], bytes]] = {
            records.HELLO: self._other,
            records.WARNING: self._other,
            records.COST: self._other,
            records.HOST_ADVANCE: self._host_advance,
            records.TRACE: self._trace,
            records.BYE: self._plain,
            records.STEPS_DONE: self._plain,
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
            records.COMM_INIT: self._creation,
            records.COMM_SPLIT: self._creation,
            records.CLOCK_READ: self._clock_read,
            records.ELAPSED: self._elapsed,
            records.QUERY: self._query,
            UNSEEN: self._unseen,
        }

    def write(self, facts: Iterable[Any]) -> tuple[bytes, list[int]]:
        """The rows, and the collectives to which they refer."""
        writers = self._writers
        rows = b"".join([writers[fact.kind](fact) for fact in facts])
        joined, self._joined = self._joined, []
        return rows, joined

    def forget(self, before: int) -> None:
        """Drops counters before this number, which no step will need."""
        while self.counters and (first := next(iter(self.counters))) < before:
            del self.counters[first]

    def process_ended(self, counters: int) -> None:
        """Adds up the counts of a process that has ended: the next process of the rank counts from 0 again."""
        self._before = self.counters.get(counters, NO_COUNTERS)

    # ---- writers ---------------------------------------------------------------------------------------------------

    def _other(self, fact: Any) -> bytes:
        return _PACK(records.HOST_ADVANCE, fact.site, 0, fact.host_ns, 0, 0, 0, 0, 0, 0)

    def _host_advance(self, fact: Any) -> bytes:
        return _PACK(fact.kind, fact.site, 0, fact.host_ns, int(fact.nbytes == SLEEP_NBYTES), 0, 0, 0, 0, 0)

    def _unseen(self, fact: Any) -> bytes:
        return _PACK(binding.UNSEEN, fact.site, 0, fact.host_ns, 0, 0, 0, 0, 0, 0)

    def _plain(self, fact: Any) -> bytes:
        return _PACK(fact.kind, fact.site, 0, fact.host_ns, 0, 0, 0, 0, 0, 0)

    def _trace(self, fact: records.Trace) -> bytes:
        self._traced += 1
        self.traces[self._traced] = fact
        return _PACK(fact.kind, fact.site, 0, fact.host_ns, self._traced, 0, 0, 0, 0, 0)

    def _memory(self, fact: records.Memory) -> bytes:
        peaks = fact.allocated_peak, fact.reserved_peak, fact.device_peak
        return _PACK(fact.kind, fact.site, fact.device, fact.host_ns, *peaks, 0, 0, 0)

    def _counters(self, fact: records.Counters) -> bytes:
        self._counted += 1
        self.counters[self._counted] = fact if self._before is NO_COUNTERS else total(self._before, fact)
        return _PACK(fact.kind, fact.site, 0, fact.host_ns, self._counted, 0, 0, 0, 0, 0)

    def _marker(self, fact: records.Marker) -> bytes:
        return _PACK(fact.kind, fact.site, 0, fact.host_ns, fact.marker, 0, 0, 0, 0, 0)

    def _stream_create(self, fact: records.StreamCreate) -> bytes:
        return _PACK(fact.kind, fact.site, fact.stream, fact.host_ns, fact.device, 0, 0, 0, 0, 0)

    def _stream_destroy(self, fact: records.StreamDestroy) -> bytes:
        return _PACK(fact.kind, fact.site, fact.stream, fact.host_ns, 0, 0, 0, 0, 0, 0)

    def _segment(self, fact: records.Segment) -> bytes:
        return segment_row(fact, fact.site)

    def _event_record(self, fact: records.EventRecord) -> bytes:
        return _PACK(fact.kind, fact.site, fact.stream, fact.host_ns, fact.recording, fact.drop, 0, 0, 0, 0)

    def _recording_drop(self, fact: records.RecordingDrop) -> bytes:
        return _PACK(fact.kind, fact.site, 0, fact.host_ns, fact.recording, 0, 0, 0, 0, 0)

    def _stream_wait(self, fact: records.StreamWait) -> bytes:
        return _PACK(fact.kind, fact.site, fact.stream, fact.host_ns, fact.recording, 0, 0, 0, 0, 0)

    def _host_wait(self, fact: records.HostWait) -> bytes:
        return _PACK(fact.kind, fact.site, fact.stream, fact.host_ns, fact.scope, fact.recording, 0, 0, 0, 0)

    def _nccl_launch(self, fact: Any) -> bytes:
        first = len(self._joined)
        self._joined += map(self._number_of, fact.collectives)
        return _PACK(binding.JOINED, fact.site, fact.stream, fact.host_ns, first, len(fact.collectives), 0, 0, 0, 0)

    def _comm_destroy(self, fact: records.CommDestroy) -> bytes:
        return _PACK(fact.kind, fact.site, 0, fact.host_ns, fact.comm, fact.aborted, 0, 0, 0, 0)

    def _creation(self, fact: Any) -> bytes:
        return _PACK(fact.kind, fact.site, 0, fact.host_ns, self._creation_of(fact.creation) + 1, 0, 0, 0, 0, 0)

    def _clock_read(self, fact: records.ClockRead) -> bytes:
        return _PACK(fact.kind, fact.site, 0, fact.host_ns, fact.qid, 0, 0, 0, 0, 0)

    def _elapsed(self, fact: records.Elapsed) -> bytes:
        named = fact.start_recording, fact.end_recording
        return _PACK(fact.kind, fact.site, 0, fact.host_ns, *named, fact.qid, 0, 0, 0)

    def _query(self, fact: records.Query) -> bytes:
        asked = fact.scope, fact.recording, fact.since_ns, fact.turns, fact.qid
        return _PACK(fact.kind, fact.site, fact.stream, fact.host_ns, *asked, 0)
