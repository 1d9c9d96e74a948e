"""Finds the critical path of a step: back from its end, through what each interval had waited for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from phantora_async.reasons.recording import Interval, Moved, NcclRun, Recorder, SegmentRun, StepReached
from phantora_async.reasons.waits import Wait
from phantora_async.virtual_time import Collective
from phantora_async.virtual_time.events import SegmentLaunched

HOST, OUTSIDE = "host", "outside"
"""The activities of a piece of a host: it works, or it waits in a socket, for a file or for another process."""
Doing = SegmentLaunched | Collective | str


class Piece(NamedTuple):
    rank: int
    start_ns: int
    end_ns: int
    doing: Doing
    """A segment of GPU work, a collective that moves data, HOST or OUTSIDE."""
    awaited: str = ""
    """The way in which others wait for this rank, see ``Wait.kind``; "": they do not."""
    slowed: float = 0.0
    """The share of a segment's time that other work on the GPU costs it."""


def walk(recorder: Recorder, end: StepReached, from_ns: int, waits: Mapping[int, Sequence[Wait]]) -> list[Piece]:
    """The critical path to `end`, in order of time. Its pieces fill the time from `from_ns` on."""
    pieces = list(_backwards(end.cause, from_ns, end.at_ns))
    pieces.reverse()
    working = [part for piece in pieces for part in _outside(piece, recorder.outside.get(piece.rank, ()))]
    return [part for piece in working for part in _awaited(piece, waits.get(piece.rank, ()))]


def _backwards(end: Interval, from_ns: int, to_ns: int) -> Iterator[Piece]:
    """Yields the pieces from `to_ns` back to `from_ns`, the latest first."""
    run: Interval | None = end
    at_ns = to_ns
    while at_ns > from_ns and run is not None:
        start_ns, cause, slowed = run.start_ns, run.cause, 0.0
        doing: Doing = HOST
        moved = max(run.moved, key=_done_ns, default=None) if isinstance(run, NcclRun) else None
        if moved is not None:
            doing, start_ns, cause = moved.collective, moved.begun_ns, moved.last.cause
        elif isinstance(run, SegmentRun):
            doing = run.launched
            if run.work_end_ns < run.end_ns:
                # The last kernels were launched too late: the path goes through the host that launched them.
                start_ns, cause = max(run.start_ns, run.end_ns - run.launched.tail_work_ns), run.launcher
            else:
                slowed = max(0.0, 1 - run.launched.solo_ns / max(run.end_ns - run.start_ns, 1))
        if start_ns < at_ns:
            yield Piece(run.rank, max(start_ns, from_ns), at_ns, doing, "", slowed)
            at_ns = start_ns
        run = cause
    if at_ns > from_ns:
        yield Piece(end.rank, from_ns, at_ns, HOST)  # before anything that was recorded


def _done_ns(moved: Moved) -> int:
    return moved.done_ns


def _outside(piece: Piece, spans: Sequence[tuple[int, int]]) -> Iterator[Piece]:
    """Divides the piece of a host where it waits outside of virtual time."""
    if piece.doing != HOST:
        yield piece
        return
    for part, inside in _cut(piece, spans):
        yield part if inside < 0 else part._replace(doing=OUTSIDE)


def _awaited(piece: Piece, waits: Sequence[Wait]) -> Iterator[Piece]:
    """Divides the piece where others begin or cease to wait for its rank. Nobody waits for one rank in a collective."""
    if isinstance(piece.doing, Collective) or piece.doing == OUTSIDE:
        yield piece
        return
    for part, inside in _cut(piece, [(wait.start_ns, wait.end_ns) for wait in waits]):
        yield part if inside < 0 else part._replace(awaited=waits[inside].kind)


def _cut(piece: Piece, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[Piece, int]]:
    """The parts of the piece, each with the number of the span in which it lies; -1: in none. Spans follow each
    other.
    """
    at_ns = piece.start_ns
    for place, (since_ns, until_ns) in enumerate(spans):
        start_ns, end_ns = max(since_ns, at_ns), min(until_ns, piece.end_ns)
        if start_ns < end_ns:
            if at_ns < start_ns:
                yield piece._replace(start_ns=at_ns, end_ns=start_ns), -1
            yield piece._replace(start_ns=start_ns, end_ns=end_ns), place
            at_ns = end_ns
    if at_ns < piece.end_ns:
        yield piece._replace(start_ns=at_ns), -1
