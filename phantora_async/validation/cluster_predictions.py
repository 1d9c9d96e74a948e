"""Predicts one published run: starts the emulation, and keeps what it gave in a file of JSON lines."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from math import isfinite
from pathlib import Path

from formats.files import MOST_DATA_NBYTES, read_text, write_whole
from phantora_async.child_process import child, interrupt_run
from phantora_async.errors import NotWritten, UsageError
from phantora_async.validation.cluster_book import ClusterRow
from phantora_async.validation.emulation import report_of

STEPS = 4
"""The steps of a run. The report counts those behind the first ones, which differ."""


@dataclass(frozen=True, slots=True)
class Prediction:
    row: str
    step_s: float | None
    low_s: float | None
    high_s: float | None
    memory_gib: float | None
    """The largest peak of memory that PyTorch reserved, over the ranks that have a timeline of their own."""
    tokens_per_s_gpu: float | None
    host_bound: float
    """The share of the step in which GPUs wait for the host, on the first rank."""
    exposed: float
    """The share in which the first rank's GPU waits for transfers and for peers."""
    modelled: float
    """The share of kernel times that models gave, where no measured table had them."""
    wall_s: float
    cpu_s: float
    failure: str
    commit: str
    date: str


def predict(row: ClusterRow, words: Sequence[str], python: str, commit: str) -> Prediction:
    """Emulates the run. It never raises for a run that fails: its error is the row's ``failure``."""
    began, used = time.monotonic(), _processor_s()
    with tempfile.TemporaryDirectory(prefix="phantora-clusters-") as folder:
        run_dir = Path(folder) / "run"
        command = [sys.executable, "-m", "phantora_async", "run", "-n", str(row.gpus), "--python", python]
        command += ["--run-dir", str(run_dir), "--no-progress", "--steps", str(STEPS), "--show-ranks", "none", *words]
        with child(
            command,
            interrupt_run,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            errors="replace",
            start_new_session=True,
        ) as process:
            out, err = process.communicate()
        report = report_of(run_dir / "report.json")
    wall_s, cpu_s = time.monotonic() - began, _processor_s() - used
    failure = ""
    if process.returncode:
        lines = [line for line in (err or out).splitlines() if line.strip()]
        failure = next((line for line in lines if line.startswith("error:")), lines[-1] if lines else "no output")
    simulated = report.get("simulated", {})
    step = simulated.get("step") or {}
    median_ns, interval = step.get("median_ns"), step.get("interval") or {}
    if failure or not median_ns:
        failure = failure or "no step was counted"
        return Prediction(
            row.name,
            None,
            None,
            None,
            None,
            None,
            0.0,
            0.0,
            0.0,
            wall_s,
            cpu_s,
            failure,
            commit,
            date.today().isoformat(),
        )
    ranks = simulated["ranks"]
    first, sources = ranks[0], simulated["cost_sources"]
    window = first["window_ns"] or 1
    return Prediction(
        row.name,
        median_ns / 1e9,
        _seconds(interval.get("low_ns")),
        _seconds(interval.get("high_ns")),
        max(one["memory"]["reserved_peak_nbytes"] for one in ranks) / 2**30,
        row.tokens / (median_ns / 1e9),
        first["host_bound_ns"] / window,
        (first["transfer_ns"] + first["peers_ns"]) / window,
        1.0 - sources["measured"],
        wall_s,
        cpu_s,
        "",
        commit,
        date.today().isoformat(),
    )


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def read(path: Path) -> dict[str, Prediction]:
    """Reads the predictions by row; none if there is no such file."""
    if not path.exists():
        return {}
    found = {}
    for number, line in enumerate(read_text(path, MOST_DATA_NBYTES, UsageError).splitlines(), start=1):
        try:
            one = Prediction(**json.loads(line))
            check(one)
        except (ValueError, TypeError, RecursionError) as error:
            raise UsageError(f"{path}:{number}: not a prediction of `validate --clusters`: {error}") from None
        found[one.row] = one
    return found


def check(one: Prediction) -> None:
    """Raises TypeError for a value that no prediction has."""
    texts, numbers = (one.row, one.failure, one.commit, one.date), (one.host_bound, one.exposed, one.modelled)
    perhaps = (one.step_s, one.low_s, one.high_s, one.memory_gib, one.tokens_per_s_gpu)
    known = [value for value in perhaps if value is not None]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("row, failure, commit and date are texts")
    for value in (*numbers, one.wall_s, one.cpu_s, *known):
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise TypeError(f"{value!r} is no number")


def write(path: Path, predictions: Iterable[Prediction]) -> None:
    """Replaces the whole file at once."""
    text = "".join(json.dumps(asdict(one)) + "\n" for one in predictions)
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise NotWritten(f"cannot write {path}: {error.strerror}") from None
