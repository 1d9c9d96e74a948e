"""Reports the collectives that ranks call, and the lines at which their hosts wait for GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from formats.files import read_bytes
from phantora_async.ingest.call_counts import WAIT, CountedCall
from phantora_async.ingest.call_sites import Line, Site
from phantora_async.report.kernels import WindowCounts, together

MOST_LISTED = 200
"""The most collectives, and the most waits, that are listed."""
MOST_CODE = 100
"""The characters of a line of the program that are shown."""
MOST_FILE_NBYTES = 4 << 20
"""The largest file of the program of which lines are shown."""
Document = dict[str, Any]


def calls_document(window: WindowCounts[CountedCall]) -> Document:
    """The calls of all ranks in a window, equal ones joined, the most bytes and the most calls first. ``left_out``: the
    kinds that are not listed.
    """
    sums: Counter[CountedCall] = Counter()
    for counts, ranks in together(rank.counts for rank in window.ranks):
        for call, counted in counts.items():
            sums[call] += counted.launches * ranks
    lines: dict[str, list[str]] = {}
    waits = [(call, count) for call, count in sums.items() if call.what == WAIT]
    collectives = [(call, count) for call, count in sums.items() if call.what != WAIT]
    return {
        "window": window.window,
        "collectives": [
            {
                "title": _title(call),
                "op": call.what,
                "dtype": call.dtype,
                "on": call.on,
                "nbytes": max(call.nbytes, 0),
                "calls": count,
                **_place(call.site, lines),
            }
            for call, count in _most(collectives)
        ],
        "waits": [{"on": call.on, "calls": count, **_place(call.site, lines)} for call, count in _most(waits)],
        "left_out": max(len(collectives) - MOST_LISTED, 0) + max(len(waits) - MOST_LISTED, 0),
    }


def _most(counted: Iterable[tuple[CountedCall, int]]) -> Sequence[tuple[CountedCall, int]]:
    ordered = sorted(counted, key=lambda one: (-one[0].nbytes * one[1], -one[1], _title(one[0]), str(one[0].site)))
    return ordered[:MOST_LISTED]


def _title(call: CountedCall) -> str:
    size = f"{call.nbytes:,} bytes" if call.nbytes >= 0 else "of other sizes"
    return f"{call.what} {size} {call.dtype}, {call.on}"


def _place(site: Site | None, lines: dict[str, list[str]]) -> Document:
    """The line and its text, by which it is recognised where lines before it have moved."""
    if site is None:
        return {"site": "", "code": ""}
    return {"site": str(site), "code": _code(site.line, lines)}


def _code(line: Line, lines: dict[str, list[str]]) -> str:
    """The text of the line; empty if it is not known. `lines`: those of the files that were read. A rank names the
    file, so it may be anything: only regular Python files are read.
    """
    if not line.file.endswith(".py"):
        return ""
    if line.file not in lines:
        try:
            text = read_bytes(Path(line.file), MOST_FILE_NBYTES).decode(errors="replace")
        except (OSError, ValueError):  # ValueError: a NUL in the name
            text = ""
        lines[line.file] = text.split("\n")
    found = lines[line.file]
    return found[line.line - 1].strip()[:MOST_CODE] if 0 < line.line <= len(found) else ""
