"""Reads histories: the launches in segments, and the host's work before each launch and each record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.contract import records
from emu.contract.records import RecordError

ENTRY = np.dtype([("launches", "<u8"), ("work", "<u8"), ("kind", "<u4"), ("inside", "<u4")])
assert ENTRY.itemsize == records.HistoryEntry.size()


class HostWork(NamedTuple):
    """The work of the host between two launches or records."""

    modelled_ns: int
    """The ns that ``counts`` cost on the recorded host."""
    rest_ns: int
    """The ns that ``counts`` do not explain; may be negative."""
    counts: tuple[tuple[int, int], ...]
    """The units of work as (kind, number): kinds as host descriptions list them."""


@dataclass(frozen=True, slots=True)
class Dictionary:
    """The works and lists of launches for which the numbers in histories stand."""

    works: Mapping[int, HostWork]
    lists: Mapping[int, Sequence[records.HistoryLaunch]]


def dictionary(works: bytes, lists: bytes) -> Dictionary:
    """Reads the dictionary from the encoded records of works and of lists. Raises RecordError."""
    found: dict[int, HostWork] = {}
    told, used = records.decode_up(works)
    for one in told:
        if not isinstance(one, records.HistoryWork):
            raise RecordError(f"{records.NAMES[one.kind]} among works")
        counts = records.WorkCount.decode_all(one.payload, 0, one.entries)
        found[one.work] = HostWork(one.modelled_ns, one.rest_ns, tuple((count.kind, count.units) for count in counts))
    launches: dict[int, Sequence[records.HistoryLaunch]] = {}
    listed, used_too = records.decode_up(lists)
    for one in listed:
        if not isinstance(one, records.HistoryList):
            raise RecordError(f"{records.NAMES[one.kind]} among lists")
        launches[one.number] = records.HistoryLaunch.decode_all(one.payload, 0, one.entries)
    if used != len(works) or used_too != len(lists):
        raise RecordError("a part of a record")
    return Dictionary(found, launches)
