"""Predicts one published run: starts the emulation, and keeps what it gave in a file of JSON lines."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from math import isfinite
from pathlib import Path

from formats.files import MOST_DATA_NBYTES, read_text
from phantora_async.errors import UsageError
from phantora_async.validation.cluster_book import ClusterRow
from phantora_async.validation.emulation import run_to_end

STEPS = 4
"""The steps of a run. The report counts those behind the first ones, which differ."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction of a row of the book. A run that failed has none of the first figures, and ``failure``."""

    row: str
    step_s: float | None
    """The median step, and its 90 % interval (``low_s``, ``high_s``)."""
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
    used = _processor_s()
    with tempfile.TemporaryDirectory(prefix="phantora-clusters-") as folder:
        run_dir = Path(folder) / "run"
        command = [sys.executable, "-m", "phantora_async", "run", "-n", str(row.gpus), "--python", python]
        command += ["--run-dir", str(run_dir), "--no-progress", "--steps", str(STEPS), "--show-ranks", "none", *words]
        ended = run_to_end(command, run_dir)
    simulated = ended.report.get("simulated", {})
    step = simulated.get("step") or {}
    median_ns, interval = step.get("median_ns"), step.get("interval") or {}
    failed = Prediction(
        row=row.name,
        step_s=None,
        low_s=None,
        high_s=None,
        memory_gib=None,
        tokens_per_s_gpu=None,
        host_bound=0.0,
        exposed=0.0,
        modelled=0.0,
        wall_s=ended.wall_s,
        cpu_s=_processor_s() - used,
        failure=ended.failure or "no step was counted",
        commit=commit,
        date=date.today().isoformat(),
    )
    if ended.failure or not median_ns:
        return failed
    ranks = simulated["ranks"]
    first, sources = ranks[0], simulated["cost_sources"]
    window = first["window_ns"] or 1
    return replace(
        failed,
        step_s=median_ns / 1e9,
        low_s=_seconds(interval.get("low_ns")),
        high_s=_seconds(interval.get("high_ns")),
        memory_gib=max(one["memory"]["reserved_peak_nbytes"] for one in ranks) / 2**30,
        tokens_per_s_gpu=row.tokens / (median_ns / 1e9),
        host_bound=first["host_bound_ns"] / window,
        exposed=(first["transfer_ns"] + first["peers_ns"]) / window,
        modelled=1.0 - sources["measured"],
        failure="",
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
