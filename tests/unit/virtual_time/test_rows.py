"""Rows are made of records' fields as records.def says."""

from __future__ import annotations

from typing import Any

import pytest

from emu.contract import records
from phantora_async.recording.rows import RankRows, Tables
from phantora_async.virtual_time.rows import ROW_LAYOUT, RowWriter


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
    assert ROW_LAYOUT.unpack(RowWriter(nobody, nobody).write([one(encoded)])[0]) == row


def test_a_recorded_row_names_recordings_by_how_many_came_since() -> None:
    """Numbers of questions and of communicators that other ranks do not have are left out."""
    rows = RankRows(0, Tables())
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
