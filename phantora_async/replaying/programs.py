"""Makes programs for the engine of virtual time from the rows of a recording."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.recording.recording import Recording, Stream
from phantora_async.recording.rows import (
    CREATIONS_OF_STEP,
    ROW,
    creations,
    kernel_launches,
    made_recordings,
    named_recordings,
    totals,
)
from phantora_async.virtual_time.native.binding import OPENS, OUTSIDE, Program, Tables

_NO_RECORDING = (1 << 62) - 1
_DROPS = 4
"""The column in which a row names recordings that no later row names: the one for the first of its recordings."""
_WITHOUT_ROOM = frozenset(kind for kind, entry in records.ENTRY_OF.items() if len(entry.row[1:]) > _DROPS)
"""The kinds of rows that have another value in this column."""


def tables_of(recording: Recording) -> Tables:
    calls = [
        (call.comm, call.callers if call.op == NcclKind.SEND else 0, call.sender, call.receiver)
        for kernel in recording.kernels
        for call in kernel
    ]
    begins = np.cumsum([0, *map(len, recording.kernels)])
    return Tables(
        np.array(begins, np.int64),
        np.array(calls, np.int32).reshape(-1, 4),
        np.array(
            [len(comm.members if comm.callers is None else comm.callers) for comm in recording.comms.values()], np.int32
        ),
    )


def programs_of(recording: Recording, streams: Sequence[Stream]) -> list[Program]:
    """The programs of the ranks that have timelines of their own, in ascending order of ranks. Raises Damaged."""
    resolved: dict[int, NDArray[np.void]] = {}
    place_of = {number: place for place, number in enumerate(recording.comms)}
    programs = []
    for rank, stream in zip(recording.own, streams, strict=True):
        rows = resolved.get(id(stream))
        if rows is None:
            rows = resolved[id(stream)] = _resolved(stream.rows)
            if not recording.connects:
                rows["values"][rows["kind"] == records.CONNECT, CREATIONS_OF_STEP] = 0
        comms = recording.comms_of(rank)
        _check(recording, rank, rows, len(comms))
        programs.append(
            Program(
                _with_sleeps(recording, rank, rows),
                np.array([place_of[comm.id] for comm in comms], np.int32),
                np.array([comm.rank_of[rank] for comm in comms], np.int32),
                np.array(recording.creations_of(rank), np.int32),
            )
        )
    return programs


def _resolved(rows: NDArray[np.void]) -> NDArray[np.void]:
    """The rows with recordings of events by their number among the rank's, from 1 on, in place of how many came since;
    each is dropped where it is named last. Each COUNTERS has its number.
    """
    rows = rows.copy()
    kinds, values = rows["kind"], rows["values"]
    made, numbers = made_recordings(rows)
    ordinal = {int(number): place for place, number in enumerate(numbers[made], 1)}
    named = [(made, 0, 0), *((which, column, 1) for which, column in named_recordings(rows))]
    last = np.zeros(len(ordinal) + 1, np.int64)
    names = []
    for which, column, ago in named:
        at = np.flatnonzero(which)
        meant = numbers[at] - values[at, column] if ago else numbers[at]
        resolved = np.array([ordinal.get(int(number), _NO_RECORDING) for number in meant], np.int64)
        rows["values"][at, column] = resolved
        known = resolved != _NO_RECORDING
        names.append((at[known], resolved[known], 1 if not ago else _DROPS + column))
        np.maximum.at(last, resolved[known], at[known])
    dropped: set[int] = set()
    for at, resolved, column in names:
        for row, number in zip(at.tolist(), resolved.tolist(), strict=True):
            if last[number] == row and number not in dropped and int(kinds[row]) not in _WITHOUT_ROOM:
                dropped.add(number)
                rows["values"][row, column] = number
    counted = totals(rows)
    rows["values"][counted, 0] = np.arange(1, int(counted.sum()) + 1)
    return rows


def _check(recording: Recording, rank: int, rows: NDArray[np.void], comms: int) -> None:
    """Checks the numbers that the engine uses as indices. Raises Damaged."""
    launched = np.unique(rows["values"][kernel_launches(rows), 0])
    known = len(recording.kernels)
    if len(launched) and int(launched[-1]) >= known:
        raise recording.damaged(f"rank {rank} launches a kernel that is not described")
    for number in launched.tolist():
        for call in recording.kernels[number]:
            if not 0 <= call.comm < comms:
                raise recording.damaged(f"rank {rank} calls on a communicator that is not described")
            members = len(recording.comms_of(rank)[call.comm].members)
            if not (0 <= call.sender < members and 0 <= call.receiver < members):
                raise recording.damaged(f"rank {rank} sends to a rank that is not there")
    created = int(creations(rows).sum())
    if created != len(recording.creations_of(rank)):
        raise recording.damaged(f"rank {rank} creates communicators that are not described")


def _with_sleeps(recording: Recording, rank: int, rows: NDArray[np.void]) -> NDArray[np.void]:
    places: list[int] = []
    added: list[tuple[int, int, int]] = []
    for number, sleep in enumerate(recording.sleeps):
        if sleep.rank == rank:
            places.append(sleep.row)
            added.append((OUTSIDE, number + 1 if sleep.cause >= 0 else 0, sleep.for_ns))
        if sleep.cause == rank:
            places.append(sleep.cause_rows)
            added.append((OPENS, number + 1, 0))
    if not added:
        return rows
    if not all(0 <= place <= len(rows) for place in places):
        raise recording.damaged(f"rank {rank} sleeps behind its end")
    more = np.zeros(len(added), ROW)
    more["kind"] = [kind for kind, _, _ in added]
    more["values"][:, :2] = [(gate, for_ns) for _, gate, for_ns in added]
    return np.insert(rows, places, more)
