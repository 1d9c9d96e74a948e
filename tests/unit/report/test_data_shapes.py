"""Sizes that the policy of `--data-shapes` chose, from DATA_SIZE records to the report's text."""

from __future__ import annotations

import pytest

from emu.contract import records
from phantora_async.errors import ProtocolError
from phantora_async.ingest.uncomputed_reads import UncomputedReads
from phantora_async.report.stated_values import sizes_document, sizes_notes


def record(calls: int, most: int, chosen: int, text: bytes = b"nonzero\nops/boxes.py:54\na.py:3") -> records.DataSize:
    (decoded,), _ = records.decode_up(records.DataSize.encode(0, calls, most, chosen, payload=text))
    assert isinstance(decoded, records.DataSize)
    return decoded


def test_totals_replace_those_before_and_ranks_add_up() -> None:
    reads = UncomputedReads()
    reads.take_size(0, record(1, 100, 10))
    reads.take_size(0, record(2, 200, 30))
    reads.take_size(1, record(2, 200, 30))
    assert sizes_document("fraction:0.1", reads)["places"] == [
        {
            "operation": "nonzero",
            "inner": "ops/boxes.py:54",
            "line": "a.py:3",
            "ranks": 2,
            "calls": 4,
            "most": 400,
            "chosen": 60,
        }
    ]


def test_the_text_names_the_policy_the_place_and_another_choice() -> None:
    reads = UncomputedReads()
    assert sizes_notes(sizes_document("most", reads)) == []
    reads.take_size(0, record(2, 6000, 6000))
    heading, line = sizes_notes(sizes_document("most", reads))
    assert "the policy most (--data-shapes)" in heading
    assert "run with --data-shapes fraction:0.1, too" in heading
    assert line == "  ops/boxes.py:54 (called from a.py:3): nonzero gives 3,000 of 3,000 in each of 2 calls"
    heading, _ = sizes_notes(sizes_document("fraction:0.5", reads))
    assert "run with --data-shapes most, too" in heading


def test_a_record_without_its_lines_ends_the_run() -> None:
    with pytest.raises(ProtocolError, match="DATA_SIZE"):
        UncomputedReads().take_size(0, record(1, 1, 1, b"nonzero\na.py:3"))
