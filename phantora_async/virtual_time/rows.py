"""Turns facts of a live rank into rows, as the engine executes them: ``native/engine.h`` says what each kind holds."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from emu.contract import records
from phantora_async.virtual_time.facts import UNSEEN, Collective, CommCreation, is_sleep
from phantora_async.virtual_time.native import binding
from phantora_async.virtual_time.states import NO_TOTALS, Totals

ROW_LAYOUT = struct.Struct("<HHIQ6Q")
"""The layout of a row, here and in a recording: kind, site, stream, host time, and six values."""
_PACK = ROW_LAYOUT.pack
_FIRST_FIELD = 4
"""The place of a record's first field: kind, site, size and host time come before."""
assert ROW_LAYOUT.size == binding.ROW_NBYTES


def row_of(kind: int, left_out: tuple[str, ...] = ()) -> Callable[[Any], bytes]:
    """Makes a function that gives the row of a record of this kind: its fields as records.def orders them, without
    these.
    """
    entry = records.ENTRY_OF[kind]
    place_of = {name: place for place, (_, name) in enumerate(entry.fields, _FIRST_FIELD)}
    stream, *values = entry.row
    values = [name for name in values if name not in left_out]
    on_stream = () if stream == "0" else (place_of[stream],)
    take = itemgetter(0, 1, *on_stream, 3, *(place_of[name] for name in values))
    pack = struct.Struct(f"<HH{'I' if on_stream else '4x'}Q{len(values)}Q{8 * (6 - len(values))}x").pack
    return lambda fact: pack(*take(fact))


_WRITERS = {kind: row_of(kind) for kind, entry in records.ENTRY_OF.items() if entry.row}
"""Write the rows that are records' fields."""


class RowWriter:
    """Writes the rows of one rank. Data that rows cannot hold is kept here by number: counters, and texts of traces."""

    def __init__(self, number_of: Callable[[Collective], int], creation_of: Callable[[CommCreation], int]) -> None:
        self.counters: dict[int, Totals] = {}
        """The totals since the run's start, by the number of COUNTERS until then. ``forget`` drops those that no step
        will need.
        """
        self.traces: dict[int, records.Trace] = {}
        self._counted = self._traced = 0
        self._before = NO_TOTALS
        """The counts of former processes."""
        self._joined: list[int] = []
        self._number_of = number_of
        self._creation_of = creation_of
        self._writers: dict[int, Callable[[Any], bytes]] = {
            **dict.fromkeys(records.marked("HOST_TIME"), self._host_time),
            **_WRITERS,
            UNSEEN: self._unseen,
            records.TRACE: self._trace,
            records.COUNTERS: self._counters,
            records.NCCL_LAUNCH: self._nccl_launch,
            records.COMM_INIT: self._creation,
            records.COMM_SPLIT: self._creation,
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
        self._before = self.counters.get(counters, NO_TOTALS)

    # ---- writers ---------------------------------------------------------------------------------------------------

    def _host_time(self, fact: Any) -> bytes:
        return _PACK(records.HOST_ADVANCE, fact.site, 0, fact.host_ns, int(is_sleep(fact)), 0, 0, 0, 0, 0)

    def _unseen(self, fact: Any) -> bytes:
        return _PACK(binding.UNSEEN, fact.site, 0, fact.host_ns, 0, 0, 0, 0, 0, 0)

    def _trace(self, fact: records.Trace) -> bytes:
        self._traced += 1
        self.traces[self._traced] = fact
        return _PACK(fact.kind, fact.site, 0, fact.host_ns, self._traced, 0, 0, 0, 0, 0)

    def _counters(self, fact: records.Counters) -> bytes:
        self._counted += 1
        self.counters[self._counted] = self._before.plus(Totals.of(fact))
        return _PACK(fact.kind, fact.site, 0, fact.host_ns, self._counted, 0, 0, 0, 0, 0)

    def _nccl_launch(self, fact: Any) -> bytes:
        first = len(self._joined)
        self._joined += map(self._number_of, fact.collectives)
        return _PACK(binding.JOINED, fact.site, fact.stream, fact.host_ns, first, len(fact.collectives), 0, 0, 0, 0)

    def _creation(self, fact: Any) -> bytes:
        return _PACK(fact.kind, fact.site, 0, fact.host_ns, self._creation_of(fact.creation) + 1, 0, 0, 0, 0, 0)
