"""Writes facts as rows, which is what virtual time executes: ``native/engine.h`` says what each kind holds.

A record's row holds what records.def names, in a run and in a recording. The two differ in numbers alone: those of
things that rows cannot hold, such as totals or the calls of an NCCL kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, Protocol

from emu.contract import records
from phantora_async.virtual_time.facts import UNSEEN, Collective, CommCreation, ConnectFact, is_sleep
from phantora_async.virtual_time.native import binding
from phantora_async.virtual_time.states import NO_TOTALS, Totals

ROW_LAYOUT = struct.Struct("<HHIQ6Q")
"""The layout of a row, here and in a recording: kind, site, stream, host time, and six values."""
_FIRST_FIELD = 4
"""The place of a record's first field: kind, site, size and host time come before."""
assert ROW_LAYOUT.size == binding.ROW_NBYTES


_OF_STEP: dict[str, Callable[[ConnectFact], int]] = {
    "creations_of_step": lambda fact: len(fact.creations),
    "waits_in_step": lambda fact: int(fact.waits),
    "further_steps": lambda fact: fact.further,
}
"""The values of rows of CONNECT that are the same wherever these are written."""


class Numbers(Protocol):
    """Gives the numbers that rows have in place of what they cannot hold: ROW_NUMBERS of records.def."""

    def number_of_kernel(self, fact: Any) -> int: ...

    def calls_of_kernel(self, fact: Any) -> int: ...

    def number_of_creation(self, fact: Any) -> int: ...

    def number_of_second_creation(self, fact: Any) -> int: ...

    def number_of_totals(self, fact: Any) -> int: ...

    def number_of_text(self, fact: Any) -> int: ...


def row_writers(numbers: Numbers) -> dict[int, Callable[[Any], bytes]]:
    """Makes the functions that write facts as rows, by the kind of fact."""
    return {
        **dict.fromkeys(records.marked("HOST_TIME"), host_time_row),
        **{kind: _row_writer(kind, entry.row, numbers) for kind, entry in records.ENTRY_OF.items() if entry.row},
        UNSEEN: lambda fact: ROW_LAYOUT.pack(binding.UNSEEN, fact.site, 0, fact.host_ns, 0, 0, 0, 0, 0, 0),
    }


def host_time_row(fact: Any) -> bytes:
    """The row of a fact of which only the host time before it matters."""
    return ROW_LAYOUT.pack(records.HOST_ADVANCE, fact.site, 0, fact.host_ns, int(is_sleep(fact)), 0, 0, 0, 0, 0)


def _row_writer(kind: int, row: tuple[str, ...], numbers: Numbers) -> Callable[[Any], bytes]:
    stream, *values = row
    place_of = {name: place for place, (_, name) in enumerate(records.ENTRY_OF[kind].fields, _FIRST_FIELD)}
    on_stream = () if stream == "0" else (place_of[stream],)
    pack = struct.Struct(f"<HH{'I' if on_stream else '4x'}Q{len(values)}Q{8 * (6 - len(values))}x").pack
    fields = [place_of[name] for name in values if name in place_of]
    take = itemgetter(0, 1, *on_stream, 3, *fields)
    if len(fields) == len(values):
        return lambda fact: pack(*take(fact))
    assert not fields, f"the row of {records.NAMES[kind]} has fields and numbers"
    numbered = [_OF_STEP.get(name) or getattr(numbers, name) for name in values]
    return lambda fact: pack(*take(fact), *(number(fact) for number in numbered))


class LiveRows:
    """Makes the rows of one rank while it runs. What rows cannot hold is kept here by number: totals, and texts of
    traces.
    """

    def __init__(self, number_of: Callable[[Collective], int], creation_of: Callable[[CommCreation], int]) -> None:
        self.counters: dict[int, Totals] = {}
        """The totals since the run's start, by the number of COUNTERS until then. ``forget`` drops those that no step
        will need.
        """
        self.traces: dict[int, records.Trace] = {}
        self._counted = self._traced = 0
        self._before = NO_TOTALS
        """The counts of former processes."""
        self._called: list[int] = []
        self._number_of = number_of
        self._creation_of = creation_of
        self._writers = row_writers(self)

    def write(self, facts: Iterable[Any]) -> tuple[bytes, list[int]]:
        """The rows, and the collectives to which they refer."""
        writers = self._writers
        rows = b"".join([writers[fact.kind](fact) for fact in facts])
        called, self._called = self._called, []
        return rows, called

    def forget(self, before: int) -> None:
        """Drops counters before this number, which no step will need."""
        while self.counters and (first := next(iter(self.counters))) < before:
            del self.counters[first]

    def process_ended(self, counters: int) -> None:
        """Adds up the counts of a process that has ended: the next process of the rank counts from 0 again."""
        self._before = self.counters.get(counters, NO_TOTALS)

    # ---- numbers ---------------------------------------------------------------------------------------------------

    def number_of_kernel(self, fact: Any) -> int:
        """The place of the kernel's first collective among those to which rows refer."""
        first = len(self._called)
        self._called += map(self._number_of, fact.collectives)
        return first

    def calls_of_kernel(self, fact: Any) -> int:
        return len(fact.collectives)

    def number_of_creation(self, fact: Any) -> int:
        """Counts from 1; 0: a step in which nothing is made."""
        if fact.kind != records.CONNECT:
            return self._creation_of(fact.creation) + 1
        return self._creation_of(fact.creations[0]) + 1 if fact.creations else 0

    def number_of_second_creation(self, fact: ConnectFact) -> int:
        return self._creation_of(fact.creations[1]) + 1 if len(fact.creations) > 1 else 0

    def number_of_totals(self, fact: records.Counters) -> int:
        self._counted += 1
        self.counters[self._counted] = self._before.plus(Totals.of(fact))
        return self._counted

    def number_of_text(self, fact: records.Trace) -> int:
        self._traced += 1
        self.traces[self._traced] = fact
        return self._traced
