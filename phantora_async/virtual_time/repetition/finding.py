"""Finds repetitions among the records of a rank."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from emu.contract import records
from phantora_async.virtual_time.entities.repetition import REPEATED, RepeatedFact, rhythm_of

LONGEST = 12
"""Records of a round, at most."""
FEWEST = 16
"""Records of a repetition, at least: shorter ones gain nothing."""
_KINDS = frozenset((records.SEGMENT, records.HOST_WAIT))


def with_repetitions(arrived: list[Any]) -> list[Any]:
    """These records, with a RepeatedFact in place of each repetition."""
    if sum(record.kind == records.HOST_WAIT for record in arrived) * LONGEST < FEWEST:
        return arrived
    found: list[Any] = []
    for repeatable, run in groupby(arrived, lambda record: record.kind in _KINDS):
        stretch = list(run)
        found += _shortened(stretch) if repeatable and len(stretch) >= FEWEST else stretch
    return found


def _shortened(stretch: Sequence[Any]) -> list[Any]:
    shortened: list[Any] = []
    at = 0
    while at < len(stretch):
        repeated = _repetition(stretch, at)
        shortened.append(stretch[at] if repeated is None else repeated)
        at += 1 if repeated is None else repeated.stands_for
    return shortened


def _repetition(stretch: Sequence[Any], at: int) -> RepeatedFact | None:
    """That which begins there, of the shortest rounds."""
    for length in range(1, min(LONGEST, (len(stretch) - at) // 2) + 1):
        if stretch[at] != stretch[at + length] or stretch[at + length - 1].kind != records.HOST_WAIT:
            continue
        facts = tuple(stretch[at : at + length])
        times = -(-FEWEST // length)
        if tuple(stretch[at : at + times * length]) != facts * times:
            continue
        rhythm = rhythm_of(facts)
        if rhythm is not None:
            while tuple(stretch[at + times * length : at + (times + 1) * length]) == facts:
                times += 1
            first = facts[0]
            return RepeatedFact(REPEATED, first.site, first.nbytes, first.host_ns, facts, times, rhythm)
    return None
