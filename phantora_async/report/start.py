"""Reports how long NCCL takes to make the run's communicators, which is no part of virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from netsim.collectives import Made, start_of_all
from phantora_async.report.guests import seats_of
from phantora_async.virtual_time.facts import Comm

Document = dict[str, Any]
LONG_NS = 5_000_000_000
"""A start that may take as long as this is told in the terminal."""


def start_document(comms: Iterable[Comm], servers: Sequence[int], version: tuple[int, int]) -> Document | None:
    """The report's part on the start; None if no communicator of several ranks was made. `comms`: in the order of their
    creation. `servers`: the number of ranks on each server.
    """
    made = [comm for comm in comms if len(comm.members) > 1]
    if not made:
        return None
    server_of = [seat.server for seat in seats_of(servers)]
    takes = start_of_all(
        (Made(comm.members, len({server_of[rank] for rank in comm.members})) for comm in made), version
    )
    of_rank = Counter(rank for comm in made for rank in comm.members)
    return {
        "communicators": max(of_rank.values()),
        "ranks": max(len(comm.members) for comm in made),
        "low_ns": round(takes.low * 1e9),
        "high_ns": round(takes.high * 1e9),
    }


def start_notes(start: Mapping[str, Any] | None) -> list[str]:
    """The note for the terminal, where the start takes long."""
    if start is None or start["high_ns"] < LONG_NS:
        return []
    count = start["communicators"]
    return [
        f"before the first step NCCL takes {start['low_ns'] / 1e9:.0f} to {start['high_ns'] / 1e9:.0f} s to make "
        f"{count} communicator{'s' * (count != 1)} of a rank, the largest of {start['ranks']:,} ranks: an estimate "
        "from published logs, in none of the times here; imports, data and compiling come on top"
    ]
