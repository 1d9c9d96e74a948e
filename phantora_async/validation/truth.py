"""Reads and checks truth files, which record what real GPUs did.

A truth file holds one JSON object a line. A line with ``job`` is a training job as its script printed it:

=====================  =========================================================================================
``job``, ``world``     name and number of GPUs
one of these           ``free_running_step_s`` (seconds a step, without synchronisation) or ``tps_median`` (tokens a
                       second and GPU, as the script's log lines show them); a line without either, of a job
                       that has others, is one of memory
``max_alloc``          peak of allocated memory on rank 0, bytes; may be absent
``max_reserved``       the same of reserved memory; ``reserved_gib`` (a list) is read, too
=====================  =========================================================================================

A line with ``op`` is a collective: ``op``, ``world``, ``bytes``, ``us_median``. Other keys are ignored. A job that was
measured several times has several lines, in one file or in several: what they span is the range of the real runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats.files import MOST_DATA_NBYTES, read_text
from phantora_async.errors import UsageError
from phantora_async.wording import printable

MOST = 2**63


@dataclass(frozen=True, slots=True)
class Range:
    """The smallest and the largest value of the real runs."""

    low: float
    high: float

    def error(self, value: float) -> float:
        """Distance of a value from the range, as a share of the range's nearer end; 0 inside."""
        if value < self.low:
            return value / self.low - 1
        return value / self.high - 1 if value > self.high else 0.0


@dataclass(frozen=True, slots=True)
class JobTruth:
    """One job, over all its measurements."""

    job: str
    world: int
    runs: int
    speeds: tuple[float, ...]
    """The speed of each run: seconds a step; tokens a second and GPU if ``speed_is_rate``."""
    speed_is_rate: bool
    max_alloc: Range | None
    max_reserved: Range | None

    @property
    def speed(self) -> Range:
        return _range(self.speeds)


@dataclass(frozen=True, slots=True)
class CollectiveTruth:
    op: str
    world: int
    nbytes: int
    us: float


@dataclass(frozen=True, slots=True)
class Truth:
    jobs: tuple[JobTruth, ...]
    collectives: tuple[CollectiveTruth, ...]


def load(paths: Sequence[Path]) -> Truth:
    """Reads the files. Raises UsageError naming file and line of what is malformed."""
    rows: dict[tuple[str, int], list[dict[str, Any]]] = {}
    collectives: list[CollectiveTruth] = []
    for path in paths:
        for where, row in _rows(path):
            if "op" in row:
                collectives.append(_collective(where, row))
            else:
                rows.setdefault((_text(where, row, "job"), _count(where, row, "world")), []).append(row | {"": where})
    return Truth(tuple(_job(*key, found) for key, found in rows.items()), tuple(collectives))


def _rows(path: Path) -> Iterable[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(read_text(path, MOST_DATA_NBYTES, UsageError).splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise UsageError(f"{where}: not JSON", "a truth file holds one JSON object a line") from None
        if not isinstance(row, dict):
            raise UsageError(f"{where}: expected a JSON object, found {line[:40]!r}")
        yield where, row


def _job(job: str, world: int, rows: Sequence[dict[str, Any]]) -> JobTruth:
    timed = [row for row in rows if row.keys() & {"free_running_step_s", "tps_median"}] or rows
    is_rate = "free_running_step_s" not in timed[0]
    key = "tps_median" if is_rate else "free_running_step_s"
    speeds = [_positive(row[""], row, key) for row in timed]
    allocated = [_positive(row[""], row, "max_alloc") for row in rows if "max_alloc" in row]
    reserved = [_reserved(row) for row in rows if "max_reserved" in row or row.get("reserved_gib")]
    return JobTruth(job, world, len(timed), tuple(speeds), is_rate, _some(allocated), _some(reserved))


def _reserved(row: dict[str, Any]) -> float:
    if "max_reserved" in row:
        return _positive(row[""], row, "max_reserved")
    values = row["reserved_gib"]
    if not isinstance(values, list) or not values:
        raise UsageError(
            f"{row['']}: reserved_gib: expected a list of positive numbers, found {printable(repr(values)[:60])}"
        )
    return max(_positive(row[""], {"reserved_gib": value}, "reserved_gib") for value in values) * 2**30


def _collective(where: str, row: dict[str, Any]) -> CollectiveTruth:
    nbytes = _count(where, row, "bytes")
    return CollectiveTruth(
        _text(where, row, "op"), _count(where, row, "world"), nbytes, _positive(where, row, "us_median")
    )


def _range(values: Sequence[float]) -> Range:
    return Range(min(values), max(values))


def _some(values: Sequence[float]) -> Range | None:
    return _range(values) if values else None


def _text(where: str, row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where}: {key}: expected a name, found {printable(repr(value)[:60])}")
    return value


def _count(where: str, row: dict[str, Any], key: str) -> int:
    value = row.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MOST:
        raise UsageError(f"{where}: {key}: expected a positive integer, found {printable(repr(value)[:60])}")
    return value


def _positive(where: str, row: dict[str, Any], key: str) -> float:
    value = row.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= MOST:
        raise UsageError(f"{where}: {key}: expected a positive number, found {printable(repr(value)[:60])}")
    return float(value)
