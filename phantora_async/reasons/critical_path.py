"""The critical path of a step: back from its end, through what each interval had waited for.

Its pieces follow each other without a gap, so their durations add up to the step time. A piece says which rank did what
at that time, and whether others waited for it (``waits``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from emu.contract import records
from phantora_async.reasons.recording import Interval, Moved, NcclRun, SegmentRun
from phantora_async.reasons.waits import Wait
from phantora_async.virtual_time import Collective

HOST = "host"
"""What a piece of a host does."""
Doing = records.Segment | Collective | str


class Piece(NamedTuple):
    rank: int
    start_ns: int
    end_ns: int
    doing: Doing
    """A segment of GPU work, a collective that moves data, or HOST."""
    awaited: str = ""
    """How others wait for this rank, see ``Wait.kind``; "": they do not."""
    slowed: float = 0.0
    """Share of a segment's time that other work on the GPU costs it."""


def walk(end: Interval, from_ns: int, to_ns: int, waits: Mapping[int, Sequence[Wait]]) -> list[Piece]:
    """The path to `end`, which was reached at `to_ns`, in order of time. Its pieces fill the time from `from_ns` on."""
    pieces = list(_backwards(end, from_ns, to_ns))
    pieces.reverse()
    return [part for piece in pieces for part in _cut(piece, waits.get(piece.rank, ()))]


def _backwards(end: Interval, from_ns: int, to_ns: int) -> Iterator[Piece]:
    """The latest first."""
    run: Interval | None = end
    at_ns = to_ns
    while at_ns > from_ns and run is not None:
        start_ns, cause, slowed = run.start_ns, run.cause, 0.0
        doing: Doing = HOST
        moved = max(run.moved, key=_done_ns, default=None) if isinstance(run, NcclRun) else None
        if moved is not None:
            doing, start_ns, cause = moved.collective, moved.begun_ns, moved.last.cause
        elif isinstance(run, SegmentRun):
            doing = run.record
            if run.work_end_ns < run.end_ns:
                # The last kernels were launched too late: the path goes through the host that launched them.
                start_ns, cause = max(run.start_ns, run.end_ns - run.record.tail_work_ns), run.launcher
            else:
                slowed = max(0.0, 1 - run.record.solo_ns / max(run.end_ns - run.start_ns, 1))
        if start_ns < at_ns:
            yield Piece(run.rank, max(start_ns, from_ns), at_ns, doing, "", slowed)
            at_ns = start_ns
        run = cause
    if at_ns > from_ns:
        yield Piece(end.rank, from_ns, at_ns, HOST)  # before anything that was recorded


def _done_ns(moved: Moved) -> int:
    return moved.done_ns


def _cut(piece: Piece, waits: Sequence[Wait]) -> Iterator[Piece]:
    """Cuts the piece where others begin or cease to wait for its rank. A collective is nobody's."""
    at_ns = piece.start_ns
    for wait in () if isinstance(piece.doing, Collective) else waits:
        start_ns, end_ns = max(wait.start_ns, at_ns), min(wait.end_ns, piece.end_ns)
        if start_ns < end_ns:
            if at_ns < start_ns:
                yield piece._replace(start_ns=at_ns, end_ns=start_ns)
            yield piece._replace(start_ns=start_ns, end_ns=end_ns, awaited=wait.kind)
            at_ns = end_ns
    if at_ns < piece.end_ns:
        yield piece._replace(start_ns=at_ns)
