"""Finds when ranks waited for another one, with nothing else to do on their GPUs.

For the last member of a collective, a *straggler*: while at least half of the other members did. For the later side of
a send, a *peer*: while the other side did; that is the bubble of a pipeline.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from phantora_async.reasons.recording import Moved, NcclRun, Recorder
from phantora_async.virtual_time.facts import PAIRWISE

PEER, STRAGGLER = "peer", "straggler"


class Wait(NamedTuple):
    start_ns: int
    end_ns: int
    kind: str
    """The kind of wait: PEER or STRAGGLER."""


Span = tuple[int, int]


def waits(recorder: Recorder, from_ns: int, to_ns: int) -> dict[int, list[Wait]]:
    """The waits by the rank that was waited for; each rank's follow each other."""
    busy = _busy(recorder)
    waiting: dict[Moved, list[NcclRun]] = {}
    for run in recorder.nccl:
        for moved in run.moved:
            if moved.last.rank != run.rank and run.start_ns < to_ns and moved.begun_ns > from_ns:
                waiting.setdefault(moved, []).append(run)
    found: dict[int, list[Wait]] = {}
    for moved, runs in waiting.items():
        pair = moved.collective.op in PAIRWISE
        needed = 1 if pair else len(moved.collective.ranks) // 2
        idle = [_idle(busy.get(run.rank, []), run.start_ns, moved.begun_ns) for run in runs]
        for start_ns, end_ns in _where_at_least(needed, idle):
            found.setdefault(moved.last.rank, []).append(Wait(start_ns, end_ns, PEER if pair else STRAGGLER))
    return {rank: list(_one_after_another(sorted(mine))) for rank, mine in found.items()}


def _busy(recorder: Recorder) -> dict[int, list[Span]]:
    """The spans in which each rank's GPUs ran segments; spans that do not touch, in order."""
    by_rank: dict[int, list[Span]] = {}
    for run in sorted(recorder.segments, key=lambda run: run.start_ns):
        mine = by_rank.setdefault(run.rank, [])
        end_ns = run.end_ns if run.end_ns >= 0 else run.start_ns
        if mine and run.start_ns <= mine[-1][1]:
            mine[-1] = mine[-1][0], max(mine[-1][1], end_ns)
        else:
            mine.append((run.start_ns, end_ns))
    return by_rank


def _idle(busy: Sequence[Span], start_ns: int, end_ns: int) -> list[Span]:
    """The parts of a span in which nothing is busy."""
    idle = []
    place = max(bisect_right(busy, start_ns, key=lambda span: span[0]) - 1, 0)
    while start_ns < end_ns and place < len(busy):
        from_ns, until_ns = busy[place]
        if from_ns >= end_ns:
            break
        if from_ns > start_ns:
            idle.append((start_ns, from_ns))
        start_ns = max(start_ns, until_ns)
        place += 1
    if start_ns < end_ns:
        idle.append((start_ns, end_ns))
    return idle


def _where_at_least(needed: int, idle: Iterable[Sequence[Span]]) -> Iterator[Span]:
    """Yields the spans in which at least `needed` of the lists have a span."""
    edges = sorted([(at, step) for spans in idle for span in spans for at, step in zip(span, (1, -1), strict=True)])
    count, since_ns = 0, 0
    for at_ns, step in edges:
        before, count = count, count + step
        if before < needed <= count:
            since_ns = at_ns
        elif count < needed <= before and at_ns > since_ns:
            yield since_ns, at_ns


def _one_after_another(ordered: Iterable[Wait]) -> Iterator[Wait]:
    """The waits without what an earlier one covers: no time counts twice."""
    reached_ns = 0
    for wait in ordered:
        start_ns = max(wait.start_ns, reached_ns)
        if start_ns < wait.end_ns:
            yield wait._replace(start_ns=start_ns)
            reached_ns = wait.end_ns
