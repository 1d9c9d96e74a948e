"""Rows are made of records' fields as records.def says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emu.contract import records
from phantora_async.recording.rows import (
    ROW,
    RecordedRows,
    Tables,
    creations,
    kernel_launches,
    made_recordings,
    named_recordings,
    step_ends,
    totals,
)
from phantora_async.virtual_time.rows import ROW_LAYOUT, LiveRows
from phantora_async.virtual_time.states import Totals


def nobody(what: object) -> int:
    raise AssertionError(what)


def one(encoded: bytes) -> Any:
    return records.decode_up(encoded)[0][0]


@pytest.mark.parametrize(
    ("encoded", "row"),
    [
        (records.Query.encode(5, 77, 3, 40, 2, 9, 6, 0, site=8), (records.QUERY, 8, 9, 5, 2, 3, 40, 6, 77, 0)),
        (records.Memory.encode(5, 1, 2, 30, 40, 50), (records.MEMORY, 0, 1, 5, 30, 40, 50, 0, 0, 0)),
        (records.ClockRead.encode(5, 77), (records.CLOCK_READ, 0, 0, 5, 77, 0, 0, 0, 0, 0)),
        (records.Segment.encode(5, 9, 1, 2, 3, 4, 6, 7), (records.SEGMENT, 0, 9, 5, 1, 2, 3, 4, 6, 7)),
        (records.HostAdvance.encode(5), (records.HOST_ADVANCE, 0, 0, 5, 1, 0, 0, 0, 0, 0)),
        (records.Warning.encode(5, 1, 1), (records.HOST_ADVANCE, 0, 0, 5, 0, 0, 0, 0, 0, 0)),
    ],
)
def test_a_live_row_has_the_fields_in_the_engine_s_order(encoded: bytes, row: tuple[int, ...]) -> None:
    """QUERY: scope, recording, since, turns, and the question's number; the stream of MEMORY is its device."""
    assert ROW_LAYOUT.unpack(LiveRows(nobody, nobody).write([one(encoded)])[0]) == row


def test_a_recorded_row_names_recordings_by_how_many_came_since() -> None:
    """Numbers of questions and of communicators that other ranks do not have are left out."""
    rows = RecordedRows(0, Tables())
    for encoded in (
        records.EventRecord.encode(1, 9, 0, 41, 0),
        records.EventRecord.encode(1, 9, 0, 42, 40),
        records.StreamWait.encode(1, 9, 0, 41),
        records.HostWait.encode(1, records.ScopeKind.EVENT, 0, 42),
        records.HostWait.encode(1, records.ScopeKind.STREAM, 9, 41),
        records.Elapsed.encode(1, 77, 41, 42),
        records.RecordingDrop.encode(1, 41),
        records.CommDestroy.encode(0, 5, 1, 0),
    ):
        rows.add(one(encoded))
    values = [row[4:7] for row in ROW_LAYOUT.iter_unpack(rows.take(99))]
    assert values == [(41, 0, 0), (1, 0, 0), (1, 0, 0), (2, 0, 0), (1, 0, 0), (1, 0, 0), (0, 0, 0), (2**64 - 1, 1, 0)]


def test_recorded_rows_tell_which_name_recordings() -> None:
    """A wait for a stream names none, although its row has the column; QUERY has the scope first."""
    rows = np.zeros(6, ROW)
    rows["kind"] = [
        records.EVENT_RECORD,
        records.HOST_WAIT,
        records.HOST_WAIT,
        records.EVENT_RECORD,
        records.QUERY,
        records.ELAPSED,
    ]
    event, stream = records.ScopeKind.EVENT, records.ScopeKind.STREAM
    rows["values"][:, :2] = [(41, 0), (event, 0), (stream, 0), (2, 0), (event, 1), (2, 0)]
    made, numbers = made_recordings(rows)
    assert np.flatnonzero(made).tolist() == [0, 3]
    assert numbers.tolist() == [41, 41, 41, 43, 43, 43]
    named = sorted((row, column) for which, column in named_recordings(rows) for row in np.flatnonzero(which).tolist())
    assert named == [(1, 1), (4, 1), (5, 0), (5, 1)]


def test_recorded_rows_tell_steps_kernels_totals_and_communicators() -> None:
    rows = np.zeros(6, ROW)
    marker = records.MARKER
    rows["kind"] = [marker, marker, records.NCCL_LAUNCH, records.COUNTERS, records.COMM_INIT, records.COMM_SPLIT]
    rows["values"][:2, 0] = records.MarkerKind.NAMED, records.MarkerKind.STEP
    assert step_ends(rows).tolist() == [1]
    assert kernel_launches(rows).tolist() == [2]
    assert np.flatnonzero(totals(rows)).tolist() == [3]
    assert np.flatnonzero(creations(rows)).tolist() == [4, 5]


def test_totals_are_the_fields_of_counters_added_over_processes() -> None:
    """A process counts from 0; its rank's totals begin with what the process before has counted."""
    writer = LiveRows(nobody, nobody)
    writer.write([one(records.Counters.encode(1, 2, 3.5, 4, 5, 6, 7, 8))])
    writer.process_ended(1)
    writer.write([one(records.Counters.encode(1, 10, 1.5, 20, 30, 40, 50, 60))])
    assert writer.counters == {1: (2, 3.5, 4, 5, 6, 7, 8), 2: (12, 5.0, 24, 35, 46, 57, 68)}
    assert Totals._fields == records.Counters._fields[4:-1]
