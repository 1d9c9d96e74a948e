"""Writes a rank's facts as rows of one size, without what differs between ranks that do the same.

They are written as the rows of a run are, with other numbers. A recording of an event is named by how many were made
since, so that equal steps have equal rows; a communicator by its number among those that the rank has used; an NCCL
kernel by its number among all kernels that differ. Questions need no number. Creations of communicators follow each
other, as do the totals of COUNTERS, which are a table of their own. HOST_ADVANCE has 1 if the program slept, 0 if a
record stood here that takes nothing but host time.

When recordings are dropped is left out: it depends on the speed of the machine.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.contract import records
from emu.contract.records import MarkerKind, NcclKind, ScopeKind
from phantora_async.virtual_time import Collective, CommCreation
from phantora_async.virtual_time.rows import ROW_LAYOUT, host_time_row, row_writers
from phantora_async.virtual_time.states import Totals

ROW = np.dtype(
    [("kind", "<u2"), ("site", "<u2"), ("stream", "<u4"), ("host_ns", "<u8"), ("values", "<u8", (6,))],
)
COUNTERS = struct.Struct("<QdQQQQQ")
WITH_ROW = records.marked("ROW") - records.marked("LIVE")
"""Records that always have a row. Others have one of the kind HOST_TIME, if host time passed before them."""
HOST_TIME = records.HOST_ADVANCE
KINDS = (*sorted(WITH_ROW), HOST_TIME)


def _in_rows(names_of: Mapping[int, Collection[str]]) -> dict[int, list[str]]:
    """The names of fields that rows have, by the kind of row."""
    found = {kind: [name for name in names_of.get(kind, ()) if name in records.ENTRY_OF[kind].row] for kind in WITH_ROW}
    return {kind: names for kind, names in found.items() if names}


_RECORDINGS = _in_rows(records.naming("recording_number"))
_COMMS = _in_rows(records.naming("comm_number"))
"""The fields of records in rows that are numbers of recordings and of communicators."""
_LEFT_OUT = _in_rows(dict.fromkeys(WITH_ROW, ("qid", "drop")))
"""The fields whose numbers differ between equal steps; they are 0 in rows."""
_, *_CONNECT = records.ENTRY_OF[records.CONNECT].row
CREATIONS_OF_STEP = _CONNECT.index("creations_of_step")
FURTHER_STEPS = _CONNECT.index("further_steps")
"""The columns of rows of CONNECT that say how many creations the row has, and how many rows of its record follow."""
MASK = (1 << 64) - 1
NO_COMM = MASK
"""The number of a communicator that the rank has not used."""
assert ROW.itemsize == ROW_LAYOUT.size


def holding(rows: NDArray[np.void], value: str) -> NDArray[np.bool_]:
    """Returns for each row whether it is of a kind with this value: see ``row`` of entries in records.def."""
    return np.isin(rows["kind"], [kind for kind in WITH_ROW if value in records.ENTRY_OF[kind].row])


def step_ends(rows: NDArray[np.void]) -> NDArray[np.intp]:
    """Returns the rows that are ends of steps."""
    return np.flatnonzero((rows["kind"] == records.MARKER) & (rows["values"][:, 0] == MarkerKind.STEP))


def kernel_launches(rows: NDArray[np.void]) -> NDArray[np.intp]:
    """Returns the rows that launch NCCL kernels, whose numbers are their first values."""
    return np.flatnonzero(holding(rows, "number_of_kernel"))


def creations(rows: NDArray[np.void]) -> NDArray[np.uint64]:
    """Returns for each row how many communicators it asks for, or connections."""
    connects = rows["kind"] == records.CONNECT
    return np.where(connects, rows["values"][:, CREATIONS_OF_STEP], holding(rows, "number_of_creation"))


def totals(rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Returns for each row whether totals belong to it."""
    return holding(rows, "number_of_totals")


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
    callers: int = 2
    """The number of ranks that call a send with its receive; 1: sender and receiver share a timeline and exchange what
    they send (``Timelines.exchange``).
    """


class Irregular(Exception):
    """The run did something that cannot be recorded. The message says what."""


@dataclass(slots=True)
class Tables:
    """The tables to which the rows of all ranks refer."""

    kernels: dict[tuple[Call, ...], int] = field(default_factory=dict)
    comms: dict[int, Any] = field(default_factory=dict)
    """The communicators by id."""
    creations: dict[CommCreation, int] = field(default_factory=dict)


class RecordedRows:
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
        self._writers = row_writers(self)

    def add(self, fact: Any) -> None:
        """Adds a fact. Raises Irregular."""
        self.facts += 1
        if fact.kind in WITH_ROW:
            self.rows += self._writers[fact.kind](self._as_in_equal_steps(fact))
        elif fact.host_ns:
            self.rows += host_time_row(fact)
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

    # ---- numbers ---------------------------------------------------------------------------------------------------

    def _as_in_equal_steps(self, fact: Any) -> Any:
        """The fact with numbers that it would have in each of several equal steps."""
        kind = fact.kind
        own: dict[str, int] = dict.fromkeys(_LEFT_OUT.get(kind, ()), 0)
        if kind == records.EVENT_RECORD:
            own["recording"] = (fact.recording - self._last_recording) & MASK
            self._last_recording = fact.recording
        elif kind in _RECORDINGS:
            by_event = getattr(fact, "scope", ScopeKind.EVENT) == ScopeKind.EVENT
            for name in _RECORDINGS[kind]:
                own[name] = (self._last_recording - getattr(fact, name)) & MASK if by_event else 0
        for name in _COMMS.get(kind, ()):
            own[name] = self.comms.get(getattr(fact, name), NO_COMM)
        return fact._replace(**own) if own else fact

    def number_of_kernel(self, fact: Any) -> int:
        """The number of the kernel among all that differ."""
        calls = tuple(self._call(collective) for collective in fact.collectives)
        kernels = self._tables.kernels
        return kernels.setdefault(calls, len(kernels))

    def calls_of_kernel(self, fact: Any) -> int:
        """0: the table of kernels has them."""
        return 0

    def number_of_creation(self, fact: Any) -> int:
        """0: the next one of the rank's creations."""
        creations = self._tables.creations
        for one in fact.creations if fact.kind == records.CONNECT else (fact.creation,):
            self.creations.append(creations.setdefault(one, len(creations)))
        return 0

    def number_of_second_creation(self, fact: Any) -> int:
        """0: the one after that, if there are two."""
        return 0

    def number_of_totals(self, fact: Any) -> int:
        """0: the next of the rank's totals."""
        self.counters += COUNTERS.pack(*Totals.of(fact))
        return 0

    def number_of_text(self, fact: Any) -> int:
        raise AssertionError("recordings have no rows of texts")

    def _call(self, collective: Collective) -> Call:
        comm = collective.comm
        self._tables.comms.setdefault(comm.id, comm)
        number = self.comms.setdefault(comm.id, len(self.comms))
        sender, receiver, callers = 0, 0, 2
        called: tuple[int, ...]
        if collective.op == NcclKind.SEND:
            sender, receiver = (comm.rank_of[rank] for rank in collective.ranks)
            called, callers = (comm.id, sender, receiver), len(collective.callers)
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
            callers,
        )
