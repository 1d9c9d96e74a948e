"""Writes rows of comparison as Markdown: for the terminal, and for a file of documentation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from formats.files import MOST_DATA_NBYTES, read_text, write_whole
from phantora_async.errors import NotWritten, UsageError
from phantora_async.validation.comparison import Figure, Row, summarise

HEADER = """\
| job | GPUs | real | simulated | error | interval | allocated | reserved | what the step is made of, if off |
|---|---:|---:|---:|---:|---:|---:|---:|---|"""


def table(rows: Sequence[Row]) -> str:
    """The table of rows. Errors are distances from the range of the real runs; 0 means inside it."""
    return "\n".join([HEADER, *map(line, rows)])


def line(row: Row) -> str:
    if row.speed is None:
        return f"| {row.job} | {row.world} | failed: {row.failure} | | | | | | |"
    speed = row.speed
    interval = ""
    if row.interval_low is not None and row.interval_high is not None:
        interval = f"{_speed(row.interval_low, row)} to {_speed(row.interval_high, row)}"
    cells = [
        row.job,
        str(row.world),
        _real(speed, row),
        f"{_speed(speed.simulated, row)} {'tokens/s' if row.speed_is_rate else 'ms'}",
        f"{speed.error:+.1%}" if speed.error else "0",
        interval,
        _error(row.max_alloc),
        _error(row.max_reserved),
        row.explanation,
    ]
    return f"| {' | '.join(cells)} |"


def summary(rows: Sequence[Row]) -> str:
    found = summarise(rows)
    parts = [
        f"{found.jobs} jobs: mean error {found.mean_error:.1%}, worst {found.worst_error:.1%} ({found.worst_job})",
        f"allocated memory {found.mean_alloc_error:.3%} mean, {found.worst_alloc_error:.3%} worst",
        f"reserved {found.mean_reserved_error:.3%} mean, {found.worst_reserved_error:.3%} worst",
    ]
    if found.with_interval:
        parts.append(f"the interval meets the real runs in {found.covered} of {found.with_interval} jobs")
    if found.failed:
        parts.append(f"{found.failed} failed")
    return "; ".join(parts)


def write_into(path: Path, title: str, text: str) -> None:
    """Replaces what stands between ``<!-- validate: TITLE -->`` and ``<!-- end -->`` in a Markdown file.

    Raises UsageError if the file has no such place, NotWritten if it cannot be written.
    """
    begin, end = f"<!-- validate: {title} -->", "<!-- end -->"
    before = read_text(path, MOST_DATA_NBYTES, UsageError)
    head, found, rest = before.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise UsageError(f"{path} has no place for the table", f"put the lines {begin} and {end} where it belongs")
    try:
        write_whole(path, f"{head}{begin}\n{text}\n{end}{tail}".encode())
    except OSError as error:
        raise NotWritten(f"cannot write {path}: {error.strerror}") from None


def _speed(value: float, row: Row) -> str:
    return f"{value:,.0f}" if row.speed_is_rate else f"{value * 1e3:.1f}"


def _real(figure: Figure, row: Row) -> str:
    low, high = _speed(figure.real_low, row), _speed(figure.real_high, row)
    return low if low == high else f"{low} to {high}"


def _error(figure: Figure | None) -> str:
    if figure is None:
        return ""
    return f"{figure.error:+.3%}" if figure.error else "0"
