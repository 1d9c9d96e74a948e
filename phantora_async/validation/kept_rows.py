"""Rows of the book of truth: what was simulated of each job, by which commit, kept in a file of JSON lines."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from formats.files import MOST_DATA_NBYTES, read_text, write_whole
from phantora_async.errors import NotWritten, UsageError
from phantora_async.validation import comparison
from phantora_async.validation.book import Family
from phantora_async.validation.cluster_predictions import Prediction
from phantora_async.validation.emulation import Emulated
from phantora_async.validation.truth import JobTruth, Range

Key = tuple[str, str, int]
SOURCES = ("phantora_async", "emu", "netsim", "profiles", "formats")
"""The folders of a checkout whose files decide what is simulated."""


@dataclass(frozen=True, slots=True)
class KeptRow:
    family: str
    fitted: bool
    """True if constants of the models were fitted to measurements of this job, or the shipped table has its times."""
    job: str
    gpu: str
    world: int
    is_rate: bool
    """True if speeds are tokens a second and GPU; else they are seconds a step."""
    real: list[float]
    """The speed of each real run."""
    simulated: float | None
    low: float | None
    high: float | None
    scale: float
    """The factor by which the interval was widened by its calibration."""
    bound: str
    """The resource that decides the step time: gpu, host or both."""
    allocated: float | None
    """The error of the peak: its distance from the range of the real runs."""
    reserved: float | None
    explanation: str
    failure: str
    commit: str
    date: str
    torch: str

    @property
    def key(self) -> Key:
        return self.gpu, self.job, self.world

    @property
    def error(self) -> float | None:
        """The distance from the range of the real runs."""
        return None if self.simulated is None else Range(min(self.real), max(self.real)).error(self.simulated)

    @property
    def width(self) -> float | None:
        """The width of the interval, as a share of the simulated value."""
        return (
            None
            if self.low is None or self.high is None or not self.simulated
            else (self.high - self.low) / self.simulated
        )

    def holds(self) -> list[bool]:
        """For each real run: true if it is in the interval."""
        if self.low is None or self.high is None:
            return []
        return [self.low <= one <= self.high for one in self.real]


def row_of(family: Family, fitted: bool, job: JobTruth, emulated: Emulated, commit: str) -> KeptRow:
    row = comparison.compare(job, emulated)
    simulated = emulated.report.get("simulated", {})
    found: dict[str, Any] = simulated.get("step", {}).get("interval") or {}
    return KeptRow(
        family.name,
        fitted,
        job.job,
        family.gpu,
        job.world,
        job.speed_is_rate,
        list(job.speeds),
        emulated.speed,
        row.interval_low,
        row.interval_high,
        found.get("scale", 1.0),
        found.get("bound", ""),
        None if row.max_alloc is None else row.max_alloc.error,
        None if row.max_reserved is None else row.max_reserved.error,
        comparison.explanation(emulated.report),
        emulated.failure,
        commit,
        date.today().isoformat(),
        emulated.torch,
    )


def read(path: Path) -> dict[Key, KeptRow]:
    """Reads the rows by GPU, job and ranks; none if there is no such file."""
    if not path.exists():
        return {}
    rows = {}
    for number, line in enumerate(read_text(path, MOST_DATA_NBYTES, UsageError).splitlines(), start=1):
        try:
            row = KeptRow(**json.loads(line))
        except (ValueError, TypeError, RecursionError) as error:
            raise UsageError(f"{path}:{number}: not a row of `validate --all`: {error}") from None
        rows[row.key] = row
    return rows


def write(path: Path, rows: Iterable[KeptRow | Prediction]) -> None:
    """Replaces the whole file at once, with a line for each row."""
    text = "".join(json.dumps(asdict(row)) + "\n" for row in rows)
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise NotWritten(f"cannot write {path}: {error.strerror}") from None


def commit_of(folder: Path) -> str:
    """The checkout's commit, with a `+` if its sources have changes; `unknown` outside of one."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True).stdout

    try:
        top = git("rev-parse", "--show-toplevel").strip()
        changed = git("-C", top, "status", "--porcelain", "--untracked-files=no", "--", *SOURCES)
        return git("rev-parse", "--short", "HEAD").strip() + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
