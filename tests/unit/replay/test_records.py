"""A recording knows every record."""

from __future__ import annotations

from emu.contract.records_definition import ENTRIES
from phantora_async.recording.recorder import LEFT_OUT, SIDE
from phantora_async.recording.rows import WITH_ROW


def test_every_record_of_a_rank_has_its_place() -> None:
    """A row, a place beside the rows, or none. What is new belongs to one of the three."""
    sent = {entry.number: entry.name for entry in ENTRIES if entry.macro in ("UP", "ASK")}
    placed = WITH_ROW | SIDE | LEFT_OUT
    assert {name for number, name in sent.items() if number not in placed} == set()
    assert placed <= sent.keys()
