"""Writes a rank's facts as rows of one size, without what differs between ranks that do the same.

=============== ================================================================================================
kind            values of a row (``stream`` is the record's own)
=============== ================================================================================================
SEGMENT         launches, solo_ns, contended_ns, tail_ns, tail_work_ns, content
EVENT_RECORD    how much larger the recording's number is than the one before
STREAM_WAIT     recording
HOST_WAIT       scope, recording
QUERY           scope, recording, since_ns, turns
ELAPSED         start, end: recordings
NCCL_LAUNCH     number of the kernel among all kernels that differ
COMM_INIT       nothing: the rank's creations follow each other. COMM_SPLIT likewise
COMM_DESTROY    number of the communicator among those that the rank has used
STREAM_CREATE   device
MEMORY          allocated, reserved, device (``stream``: the device's number)
MARKER          which
COUNTERS        nothing: the totals are a table of their own
HOST_ADVANCE    1 if the program slept, 0 if a record stood here that takes nothing but host time
=============== ================================================================================================

A recording is named by how many were made since, so that equal steps have equal rows. When recordings are dropped is
left out: it depends on the speed of the machine.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from emu.contract import records
from emu.contract.records import NcclKind, ScopeKind
from phantora_async.virtual_time import Collective, CommCreation
from phantora_async.virtual_time.facts import SLEEP_NBYTES
from phantora_async.virtual_time.rows import ROW_LAYOUT, segment_row

ROW = np.dtype(
    [("kind", "<u2"), ("site", "<u2"), ("stream", "<u4"), ("host_ns", "<u8"), ("values", "<u8", (6,))],
)
_PACK = ROW_LAYOUT.pack
COUNTERS = struct.Struct("<QdQQQQQ")
WITH_ROW = frozenset(
    {
        records.SEGMENT,
        records.EVENT_RECORD,
        records.STREAM_WAIT,
        records.HOST_WAIT,
        records.QUERY,
        records.ELAPSED,
        records.CLOCK_READ,
        records.NCCL_LAUNCH,
        records.COMM_INIT,
        records.COMM_SPLIT,
        records.COMM_DESTROY,
        records.STREAM_CREATE,
        records.STREAM_DESTROY,
        records.MEMORY,
        records.MARKER,
        records.COUNTERS,
        records.BYE,
        records.STEPS_DONE,
    }
)
"""Records that always have a row. Others have one, a HOST_ADVANCE, if host time passed before them."""
MASK = (1 << 64) - 1
NO_COMM = MASK
"""The number of a communicator that the rank has not used."""
assert ROW.itemsize == ROW_LAYOUT.size


class Call(NamedTuple):
    """The call of one member of an NCCL kernel, without the ranks' own numbers."""

    comm: int
    """The number of the communicator among those that the rank has used."""
    op: int
    dtype: int
    redop: int
    elements: int
    root: int
    sender: int
    """The ranks of sender and receiver in the communicator, for a send."""
    receiver: int


class Irregular(Exception):
    """The run did something that cannot be recorded. The message says what."""


@dataclass(slots=True)
class Tables:
    """The tables to which the rows of all ranks refer."""

    kernels: dict[tuple[Call, ...], int] = field(default_factory=dict)
    comms: dict[int, Any] = field(default_factory=dict)
    """The communicators by id."""
    creations: dict[CommCreation, int] = field(default_factory=dict)


class RankRows:
    """Makes one rank's rows: ``add`` facts in order; whole pieces leave through ``take``."""

    def __init__(self, rank: int, tables: Tables) -> None:
        self.rank = rank
        self.rows = bytearray()
        self.counters = bytearray()
        self.comms: dict[int, int] = {}
        """The number of each communicator among those that the rank has used, by id."""
        self.creations: list[int] = []
        self.facts = 0
        """The number of facts taken from the rank; not all have a row."""
        self._without: list[int] = []
        """The numbers of facts that have no row."""
        self._tables = tables
        self._last_recording = 0
        self._called: Counter[tuple[int, ...]] = Counter()
        self._writers: dict[int, Callable[[Any], bytes]] = {
            records.SEGMENT: self._segment,
            records.EVENT_RECORD: self._event_record,
            records.STREAM_WAIT: self._stream_wait,
            records.HOST_WAIT: self._host_wait,
            records.QUERY: self._query,
            records.ELAPSED: self._elapsed,
            records.CLOCK_READ: self._site_only,
            records.NCCL_LAUNCH: self._nccl_launch,
            records.COMM_INIT: self._creation,
            records.COMM_SPLIT: self._creation,
            records.COMM_DESTROY: self._comm_destroy,
            records.STREAM_CREATE: self._stream_create,
            records.STREAM_DESTROY: self._stream_destroy,
            records.MEMORY: self._memory,
            records.MARKER: self._marker,
            records.COUNTERS: self._counters,
            records.BYE: self._site_only,
            records.STEPS_DONE: self._site_only,
        }

    def add(self, fact: Any) -> None:
        """Adds a fact. Raises Irregular."""
        self.facts += 1
        writer = self._writers.get(fact.kind)
        if writer is not None:
            self.rows += writer(fact)
        elif fact.host_ns:
            slept = fact.kind == records.HOST_ADVANCE and fact.nbytes <= SLEEP_NBYTES
            self.rows += _PACK(records.HOST_ADVANCE, 0, 0, fact.host_ns, int(slept), 0, 0, 0, 0, 0)
        else:
            self._without.append(self.facts - 1)

    def rows_of(self, facts: int) -> int:
        """The number of rows of the first so many facts."""
        return facts - bisect_left(self._without, facts)

    def take(self, most: int) -> bytes:
        """The first `most` rows since the last call."""
        end = most * ROW.itemsize
        rows = bytes(self.rows[:end])
        del self.rows[:end]
        return rows

    # ---- writers ---------------------------------------------------------------------------------------------------

    def _segment(self, fact: Any) -> bytes:
        return segment_row(fact, 0)

    def _event_record(self, fact: Any) -> bytes:
        further = (fact.recording - self._last_recording) & MASK
        self._last_recording = fact.recording
        return _PACK(fact.kind, 0, fact.stream, fact.host_ns, further, 0, 0, 0, 0, 0)

    def _ago(self, recording: int) -> int:
        return (self._last_recording - recording) & MASK

    def _stream_wait(self, fact: Any) -> bytes:
        return _PACK(fact.kind, 0, fact.stream, fact.host_ns, self._ago(fact.recording), 0, 0, 0, 0, 0)

    def _host_wait(self, fact: Any) -> bytes:
        ago = self._ago(fact.recording) if fact.scope == ScopeKind.EVENT else 0
        return _PACK(fact.kind, fact.site, fact.stream, fact.host_ns, fact.scope, ago, 0, 0, 0, 0)

    def _query(self, fact: Any) -> bytes:
        ago = self._ago(fact.recording) if fact.scope == ScopeKind.EVENT else 0
        return _PACK(fact.kind, fact.site, fact.stream, fact.host_ns, fact.scope, ago, fact.since_ns, fact.turns, 0, 0)

    def _elapsed(self, fact: Any) -> bytes:
        start, end = self._ago(fact.start_recording), self._ago(fact.end_recording)
        return _PACK(fact.kind, fact.site, 0, fact.host_ns, start, end, 0, 0, 0, 0)

    def _site_only(self, fact: Any) -> bytes:
        return _PACK(fact.kind, fact.site, 0, fact.host_ns, 0, 0, 0, 0, 0, 0)

    def _nccl_launch(self, fact: Any) -> bytes:
        calls = tuple(self._call(collective) for collective in fact.collectives)
        kernels = self._tables.kernels
        number = kernels.setdefault(calls, len(kernels))
        return _PACK(fact.kind, fact.site, fact.stream, fact.host_ns, number, 0, 0, 0, 0, 0)

    def _call(self, collective: Collective) -> Call:
        comm = collective.comm
        self._tables.comms.setdefault(comm.id, comm)
        number = self.comms.setdefault(comm.id, len(self.comms))
        sender = receiver = 0
        called: tuple[int, ...]
        if collective.op == NcclKind.SEND:
            sender, receiver = (comm.rank_of[rank] for rank in collective.ranks)
            called = (comm.id, sender, receiver)
            expected = self._called[called] // (2 if sender == receiver else 1)
        else:
            called = (comm.id,)
            expected = self._called[called]
        if collective.seq != expected:
            raise Irregular(f"calls of rank {self.rank} on the {comm.label} are not numbered in order")
        self._called[called] += 1
        return Call(
            number,
            collective.op,
            collective.dtype,
            collective.redop,
            collective.count,
            collective.root,
            sender,
            receiver,
        )

    def _creation(self, fact: Any) -> bytes:
        creations = self._tables.creations
        self.creations.append(creations.setdefault(fact.creation, len(creations)))
        return self._site_only(fact)

    def _comm_destroy(self, fact: Any) -> bytes:
        comm = self.comms.get(fact.comm, NO_COMM)
        return _PACK(fact.kind, 0, 0, fact.host_ns, comm, fact.aborted, 0, 0, 0, 0)

    def _stream_create(self, fact: Any) -> bytes:
        return _PACK(fact.kind, 0, fact.stream, fact.host_ns, fact.device, 0, 0, 0, 0, 0)

    def _stream_destroy(self, fact: Any) -> bytes:
        return _PACK(fact.kind, 0, fact.stream, fact.host_ns, 0, 0, 0, 0, 0, 0)

    def _memory(self, fact: Any) -> bytes:
        peaks = fact.allocated_peak, fact.reserved_peak, fact.device_peak
        return _PACK(fact.kind, 0, fact.device, fact.host_ns, *peaks, 0, 0, 0)

    def _marker(self, fact: Any) -> bytes:
        return _PACK(fact.kind, 0, 0, fact.host_ns, fact.marker, 0, 0, 0, 0, 0)

    def _counters(self, fact: Any) -> bytes:
        self.counters += COUNTERS.pack(
            fact.launches,
            fact.flops,
            fact.host_work_ns,
            fact.api_calls,
            fact.ops,
            fact.unmodelled_reads,
            fact.refused_calls,
        )
        return self._site_only(fact)
