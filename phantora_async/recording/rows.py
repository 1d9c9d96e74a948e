"""Writes a rank's facts as rows of one size, without what differs between ranks that do the same.

The values of a row are those that records.def names, except for numbers. A recording of an event is named by how many
were made since, so that equal steps have equal rows; a communicator by its number among those that the rank has used;
an NCCL kernel by its number among all kernels that differ. Questions need no number. Creations of communicators follow
each other, as do the totals of COUNTERS, which are a table of their own. HOST_ADVANCE has 1 if the program slept, 0 if
a record stood here that takes nothing but host time.

When recordings are dropped is left out: it depends on the speed of the machine.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.contract import records
from emu.contract.records import MarkerKind, NcclKind, ScopeKind
from phantora_async.virtual_time import Collective, CommCreation
from phantora_async.virtual_time.facts import is_sleep
from phantora_async.virtual_time.rows import ROW_LAYOUT, row_of
from phantora_async.virtual_time.states import Totals

ROW = np.dtype(
    [("kind", "<u2"), ("site", "<u2"), ("stream", "<u4"), ("host_ns", "<u8"), ("values", "<u8", (6,))],
)
_PACK = ROW_LAYOUT.pack
COUNTERS = struct.Struct("<QdQQQQQ")
WITH_ROW = records.marked("ROW") - records.marked("LIVE")
"""Records that always have a row. Others have one of the kind HOST_TIME, if host time passed before them."""
HOST_TIME = records.HOST_ADVANCE
KINDS = (*sorted(WITH_ROW), HOST_TIME)
_WRITERS = {kind: row_of(kind, ("qid", "drop")) for kind in WITH_ROW if records.ENTRY_OF[kind].row}
_RECORDINGS = {kind: names for kind, names in records.naming("recording_number").items() if kind in WITH_ROW}
_COMMS = {kind: names for kind, names in records.naming("comm_number").items() if kind in _WRITERS}
"""The fields of records in rows that are numbers of recordings and of communicators."""
MASK = (1 << 64) - 1
NO_COMM = MASK
"""The number of a communicator that the rank has not used."""
assert ROW.itemsize == ROW_LAYOUT.size


def step_ends(rows: NDArray[np.void]) -> NDArray[np.intp]:
    """Returns the rows that are ends of steps."""
    return np.flatnonzero((rows["kind"] == records.MARKER) & (rows["values"][:, 0] == MarkerKind.STEP))


def kernel_launches(rows: NDArray[np.void]) -> NDArray[np.intp]:
    """Returns the rows that launch NCCL kernels, whose numbers are their first values."""
    return np.flatnonzero(rows["kind"] == records.NCCL_LAUNCH)


def creations(rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Returns for each row whether it asks for a communicator."""
    return np.isin(rows["kind"], (records.COMM_INIT, records.COMM_SPLIT))


def totals(rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Returns for each row whether totals belong to it."""
    found: NDArray[np.bool_] = rows["kind"] == records.COUNTERS
    return found


def made_recordings(rows: NDArray[np.void]) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
    """Returns which rows make recordings of events, and for each row the number of the latest recording until then."""
    made = rows["kind"] == records.EVENT_RECORD
    return made, np.cumsum(np.where(made, rows["values"][:, 0], 0).astype(np.uint64))


def named_recordings(rows: NDArray[np.void]) -> Iterator[tuple[NDArray[np.bool_], int]]:
    """Yields the rows that name recordings which were made before, and the column in which they do so."""
    for kind in sorted(_RECORDINGS.keys() - {records.EVENT_RECORD}):
        _, *values = records.ENTRY_OF[kind].row
        which = rows["kind"] == kind
        if "scope" in values:
            which &= rows["values"][:, values.index("scope")] == ScopeKind.EVENT
        for name in _RECORDINGS[kind]:
            yield which, values.index(name)


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
            **_WRITERS,
            records.COUNTERS: self._counters,
            records.NCCL_LAUNCH: self._nccl_launch,
            records.COMM_INIT: self._creation,
            records.COMM_SPLIT: self._creation,
        }

    def add(self, fact: Any) -> None:
        """Adds a fact. Raises Irregular."""
        self.facts += 1
        writer = self._writers.get(fact.kind)
        if writer is not None:
            if fact.kind in _RECORDINGS or fact.kind in _COMMS:
                fact = self._named(fact)
            self.rows += writer(fact)
        elif fact.host_ns:
            self.rows += _PACK(HOST_TIME, 0, 0, fact.host_ns, int(is_sleep(fact)), 0, 0, 0, 0, 0)
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

    def _named(self, fact: Any) -> Any:
        """The record with the numbers that its row has."""
        if fact.kind == records.EVENT_RECORD:
            further = (fact.recording - self._last_recording) & MASK
            self._last_recording = fact.recording
            return fact._replace(recording=further)
        if fact.kind in _COMMS:
            return fact._replace(**{name: self.comms.get(getattr(fact, name), NO_COMM) for name in _COMMS[fact.kind]})
        by_event = getattr(fact, "scope", ScopeKind.EVENT) == ScopeKind.EVENT
        named = {name: (self._last_recording - getattr(fact, name)) & MASK for name in _RECORDINGS[fact.kind]}
        return fact._replace(**(named if by_event else dict.fromkeys(named, 0)))

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

    def _counters(self, fact: Any) -> bytes:
        self.counters += COUNTERS.pack(*Totals.of(fact))
        return self._site_only(fact)
