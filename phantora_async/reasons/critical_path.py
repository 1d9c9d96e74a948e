"""The critical path of a step: back from its end, through what each interval had waited for.

Its pieces follow each other without a gap, so their durations add up to the step time. A piece says which rank did what
at that time. Where it made others wait, it says so: the last member of a collective is a *straggler* from the instant
at which half of the others had arrived; a *peer* is awaited by the other side of a send.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from emu.contract import records
from phantora_async.reasons.recording import Interval, Moved, NcclRun, SegmentRun
from phantora_async.virtual_time import Collective
from phantora_async.virtual_time.facts import PAIRWISE

PEER, STRAGGLER = "peer", "straggler"
HOST = "host"
"""What a piece of a host does."""


Doing = records.Segment | Collective | str


class Piece(NamedTuple):
    rank: int
    start_ns: int
    end_ns: int
    doing: Doing
    """A segment of GPU work, a collective that moves data, or HOST."""
    awaited: str
    """PEER or STRAGGLER: others wait for this rank; "": they do not."""
    slowed: float = 0.0
    """Share of a segment's time that other work on the GPU costs it."""


@dataclass(slots=True)
class _Awaited:
    """From ``since_ns`` on, others waited for what the path goes through."""

    since_ns: int
    kind: str = ""


def walk(end: Interval, from_ns: int, to_ns: int) -> list[Piece]:
    """The path to `end`, which was reached at `to_ns`, in order of time. Its pieces fill the time from `from_ns` on."""
    pieces = list(_backwards(end, from_ns, to_ns))
    pieces.reverse()
    return pieces


def _backwards(end: Interval, from_ns: int, to_ns: int) -> Iterator[Piece]:
    """The latest first."""
    run: Interval | None = end
    at_ns, awaited = to_ns, _Awaited(to_ns)
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
        yield from _cut(Piece(run.rank, max(start_ns, from_ns), at_ns, doing, "", slowed), awaited)
        if moved is not None and isinstance(run, NcclRun):
            _arrive(awaited, run, moved)
        at_ns, run = min(at_ns, start_ns), cause
    yield from _cut(Piece(end.rank, from_ns, at_ns, HOST, "", 0.0), awaited)  # before the first recorded event


def _done_ns(moved: Moved) -> int:
    return moved.done_ns


def _arrive(awaited: _Awaited, run: NcclRun, moved: Moved) -> None:
    """The path goes from a collective's begin to the member that arrived last."""
    if moved.collective.op in PAIRWISE:
        kind, since_ns = PEER, run.start_ns if moved.last is not run else moved.begun_ns
    else:
        kind, since_ns = STRAGGLER, moved.others_ns
    if since_ns < min(moved.begun_ns, awaited.since_ns):
        awaited.since_ns = since_ns
    if since_ns < moved.begun_ns:
        awaited.kind = kind


def _cut(piece: Piece, awaited: _Awaited) -> Iterator[Piece]:
    """The part in which others waited for the piece's rank, then the part before it."""
    if piece.start_ns >= piece.end_ns:
        return
    if isinstance(piece.doing, Collective):
        yield piece
        return
    cut_ns = min(max(awaited.since_ns, piece.start_ns), piece.end_ns)
    if cut_ns < piece.end_ns:
        yield piece._replace(start_ns=cut_ns, awaited=awaited.kind)
    if piece.start_ns < cut_ns:
        yield piece._replace(end_ns=cut_ns)
