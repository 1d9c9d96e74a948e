"""Sums up the pieces of a critical path: by kind, by kernel and by collective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from emu.contract.records import NcclKind
from phantora_async.reasons.contents import COMPUTE, Contents
from phantora_async.reasons.critical_path import OUTSIDE, Piece
from phantora_async.reasons.recording import Recorder
from phantora_async.virtual_time import Collective
from phantora_async.virtual_time.facts import PAIRWISE

MOST_LISTED = 10
"""The most kernels and collectives that are listed."""
MOST_PIECES = 1000
"""The most pieces of the path that are listed. Of a longer path the longest pieces are."""
SLOWED = "slowed by work beside it"
Document = dict[str, Any]


class Part(NamedTuple):
    kind: str
    """The kind: `compute`, `copies`, `communication`, `host`, `peer` or `straggler`."""
    name: str
    """The kernels' family, the copies' direction, the communicator, or the rank that others wait for."""
    doing: str
    """The activity of the rank for which others wait: `compute`, `copies` or `host`; else ""."""


def parts(pieces: Iterable[Piece], contents: Contents) -> list[Document]:
    """The parts of the path, the longest first. They add up to the pieces' time."""
    sums: Counter[Part] = Counter()
    for piece in pieces:
        for part, for_ns in _parts_of(piece, contents):
            sums[part] += for_ns
    ordered = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
    return [part._asdict() | {"ns": for_ns} for part, for_ns in ordered if for_ns]


def _parts_of(piece: Piece, contents: Contents) -> Iterator[tuple[Part, int]]:
    for_ns = piece.end_ns - piece.start_ns
    if isinstance(piece.doing, Collective):
        yield Part("communication", piece.doing.comm.label, ""), for_ns
    elif isinstance(piece.doing, str):
        outside = " (in sockets, files, other processes)" if piece.doing == OUTSIDE else ""
        yield _part(piece, "host", f"rank {piece.rank}{outside}"), for_ns
    else:
        slowed_ns = int(for_ns * piece.slowed)
        yield _part(piece, COMPUTE, SLOWED), slowed_ns
        for key, share_ns in contents.shares(piece.doing.content, for_ns - slowed_ns).items():
            work = contents.work(key)
            yield _part(piece, work.kind, work.family), share_ns


def _part(piece: Piece, kind: str, name: str) -> Part:
    return Part(piece.awaited, f"rank {piece.rank}", kind) if piece.awaited else Part(kind, name, "")


def path(pieces: Sequence[Piece], contents: Contents, from_ns: int) -> list[Document]:
    """The pieces in order of time, with instants counted from the step's begin. Neighbouring pieces of one rank that do
    the same are joined.
    """
    joined: list[Document] = []
    for piece in pieces:
        kind, name = _title(piece, contents)
        last = joined[-1] if joined else None
        start_ns, end_ns = piece.start_ns - from_ns, piece.end_ns - from_ns
        if last is not None and (last["rank"], last["kind"], last["name"]) == (piece.rank, kind, name):
            last["end_ns"] = end_ns
        else:
            joined.append({"rank": piece.rank, "kind": kind, "name": name, "start_ns": start_ns, "end_ns": end_ns})
    if len(joined) <= MOST_PIECES:
        return joined
    longest = sorted(joined, key=lambda one: one["start_ns"] - one["end_ns"])[:MOST_PIECES]
    return sorted(longest, key=lambda one: one["start_ns"])


def _title(piece: Piece, contents: Contents) -> tuple[str, str]:
    """The kind and name of the work that most of the piece does."""
    if isinstance(piece.doing, Collective):
        return "communication", collective_name(piece.doing)
    kind, name = max(_parts_of(piece, contents), key=lambda item: item[1])[0][:2]
    return kind, name


def collective_name(collective: Collective) -> str:
    if collective.op in PAIRWISE:
        op, where = "send", f"rank {collective.ranks[0]} to rank {collective.ranks[1]}"
    else:
        op, where = NcclKind(collective.op).name.lower(), collective.comm.label
    return f"{op} {collective.nbytes:,} bytes, {where}"


# ---- what costs most ---------------------------------------------------------------------------------------------


def kernels(recorder: Recorder, pieces: Iterable[Piece], contents: Contents, window: tuple[int, int]) -> Document:
    """The kernels that cost most. ``gpu``: by GPU time of all ranks; ``path``: by time on the critical path."""
    gpu_ns: Counter[int] = Counter()
    launches: Counter[int] = Counter()
    path_ns: Counter[int] = Counter()
    segments: Counter[int] = Counter()
    for run in recorder.segments:
        if window[0] < run.end_ns <= window[1]:
            segments[run.launched.content] += 1
    for content, count in segments.items():
        for key, launched in contents.of(content).items():
            launches[key] += launched * count
            gpu_ns[key] += contents.solo_ns(key) * launched * count
    for piece in pieces:
        if not isinstance(piece.doing, Collective | str):
            for_ns = piece.end_ns - piece.start_ns
            path_ns.update(contents.shares(piece.doing.content, for_ns - int(for_ns * piece.slowed)))

    def row(key: int) -> Document:
        work = contents.work(key)
        return {
            "title": work.title,
            "family": work.family,
            "launches": launches[key],
            "gpu_ns": gpu_ns[key],
            "path_ns": path_ns[key],
        }

    return {"gpu": _most(gpu_ns, row), "path": _most(path_ns, row)}


def collectives(recorder: Recorder, pieces: Iterable[Piece], window: tuple[int, int]) -> Document:
    """The collectives that cost most, by GPU time and on the critical path; equal ones are joined. `gpu_ns`: GPU time
    with the kernel resident; `waiting_ns`: the part of it before data moves. `left_out`: the number that ``gpu`` does
    not list.
    """
    gpu_ns: Counter[str] = Counter()
    waiting_ns: Counter[str] = Counter()
    path_ns: Counter[str] = Counter()
    calls: dict[str, set[Collective]] = {}
    for run in recorder.nccl:
        if not run.moved or not window[0] < run.end_ns <= window[1]:
            continue
        begun_ns = max(moved.begun_ns for moved in run.moved)
        for moved in run.moved:
            name = collective_name(moved.collective)
            calls.setdefault(name, set()).add(moved.collective)
            gpu_ns[name] += (run.end_ns - run.start_ns) // len(run.moved)
            waiting_ns[name] += (begun_ns - run.start_ns) // len(run.moved)
    for piece in pieces:
        if isinstance(piece.doing, Collective):
            path_ns[collective_name(piece.doing)] += piece.end_ns - piece.start_ns

    def row(name: str) -> Document:
        return {
            "title": name,
            "calls": len(calls.get(name, ())),
            "gpu_ns": gpu_ns[name],
            "waiting_ns": waiting_ns[name],
            "path_ns": path_ns[name],
        }

    return {"gpu": _most(gpu_ns, row), "path": _most(path_ns, row), "left_out": max(len(gpu_ns) - MOST_LISTED, 0)}


def _most(sums: Counter[Any], row: Any) -> list[Document]:
    ordered = sorted(sums.items(), key=lambda item: (-item[1], str(item[0])))
    return [row(key) for key, for_ns in ordered[:MOST_LISTED] if for_ns]
