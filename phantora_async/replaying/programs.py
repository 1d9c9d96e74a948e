"""Rows of a recording as the engine executes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emu.contract import records
from emu.contract.records import NcclKind, ScopeKind
from phantora_async.faults.pace import Paces
from phantora_async.recording.recording import Recording, Stream
from phantora_async.recording.rows import ROW
from phantora_async.replaying.native.binding import PaceTable, Program, Tables

OUTSIDE, OPENS = 1000, 1001
"""Kinds of rows that stand for no record: a sleep, and an answer that ends one."""
_NO_RECORDING = (1 << 62) - 1


def tables_of(recording: Recording) -> Tables:
    calls = [
        (call.comm, call.op == NcclKind.SEND, call.sender, call.receiver)
        for kernel in recording.kernels
        for call in kernel
    ]
    begins = np.cumsum([0, *map(len, recording.kernels)])
    members = {id(one.members): one.members for one in recording.creations}
    asking = {number: len(recording.timelines.having(of_one)) for number, of_one in members.items()}
    return Tables(
        np.array(begins, np.int64),
        np.array(calls, np.int32).reshape(-1, 4),
        np.array(
            [len(comm.members if comm.callers is None else comm.callers) for comm in recording.comms.values()], np.int32
        ),
        np.array([asking[id(one.members)] for one in recording.creations], np.int32),
        len(recording.sleeps),
    )


def table_of(paces: Paces, ranks: Sequence[int]) -> PaceTable:
    """`ranks`: those that have timelines of their own."""
    every = list(dict.fromkeys([*paces.hosts.values(), *paces.devices.values()]))
    number = {pace: place for place, pace in enumerate(every)}
    hosts = [number[paces.hosts[rank]] if rank in paces.hosts else -1 for rank in ranks]
    place = {rank: at for at, rank in enumerate(ranks)}
    devices = [(place[rank], device, number[pace]) for (rank, device), pace in paces.devices.items()]
    return PaceTable(every, np.array(hosts, np.int32), np.array(devices, np.int32).reshape(-1, 3))


def programs_of(recording: Recording, streams: Sequence[Stream]) -> list[Program]:
    """Of each rank that has a timeline of its own. Raises Damaged."""
    resolved: dict[int, tuple[NDArray[np.void], int]] = {}
    place_of = {number: place for place, number in enumerate(recording.comms)}
    programs = []
    for rank, stream in zip(recording.own, streams, strict=True):
        known = resolved.get(id(stream))
        if known is None:
            known = resolved[id(stream)] = _resolved(recording, stream.rows)
        rows, recordings = known
        comms = recording.comms_of(rank)
        _check(recording, rank, rows, len(comms))
        programs.append(
            Program(
                _with_sleeps(recording, rank, rows),
                np.array([place_of[comm.id] for comm in comms], np.int32),
                np.array([comm.rank_of[rank] for comm in comms], np.int32),
                recordings,
                np.array(recording.creations_of(rank), np.int32),
            )
        )
    return programs


def aborts(streams: Sequence[Stream]) -> bool:
    """Does a rank abort a communicator? The engine knows no aborts."""
    rows = {id(stream): stream.rows for stream in streams}.values()
    return any(bool(np.any((one["kind"] == records.COMM_DESTROY) & (one["values"][:, 1] != 0))) for one in rows)


def _resolved(recording: Recording, rows: NDArray[np.void]) -> tuple[NDArray[np.void], int]:
    """Recordings of events by their number among the rank's, in place of how many came since."""
    rows = rows.copy()
    kinds, values = rows["kind"], rows["values"]
    made = kinds == records.EVENT_RECORD
    numbers = np.cumsum(np.where(made, values[:, 0], 0).astype(np.uint64))
    ordinal = {int(number): place for place, number in enumerate(numbers[made])}
    by_event = np.isin(kinds, (records.HOST_WAIT, records.QUERY)) & (values[:, 0] == ScopeKind.EVENT)
    named = [(made, 0, 0), (kinds == records.STREAM_WAIT, 0, 1), (by_event, 1, 1)]
    named += [(kinds == records.ELAPSED, column, 1) for column in (0, 1)]
    for which, column, ago in named:
        at = np.flatnonzero(which)
        meant = numbers[at] - values[at, column] if ago else numbers[at]
        rows["values"][at, column] = [ordinal.get(int(number), _NO_RECORDING) for number in meant]
    return rows, len(ordinal)


def _check(recording: Recording, rank: int, rows: NDArray[np.void], comms: int) -> None:
    """Numbers that the engine uses as places. Raises Damaged."""
    launched = np.unique(rows["values"][rows["kind"] == records.NCCL_LAUNCH, 0])
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
    created = int(np.isin(rows["kind"], (records.COMM_INIT, records.COMM_SPLIT)).sum())
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
