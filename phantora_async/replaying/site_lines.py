"""Finds lines of the script, as ranks announced them."""

from __future__ import annotations

from emu.contract import records
from phantora_async.ingest.call_sites import from_record
from phantora_async.recording import Recording


def line_of(recording: Recording, rank: int, site: int) -> str:
    """The call site of that number of the rank."""
    found = (from_record(one) for one in recording.side(rank) if one.kind == records.SITE and one.number == site)
    return str(next(found, None) or "a place that is not known")
