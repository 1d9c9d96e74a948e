"""Runs jobs and judges their reports."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phantora_async.api.results import Run
from phantora_async.api.running import Together
from phantora_async.budget import OF_MEMORY, OF_TIME, OPTIONS, Row, broken_text, ended_over_budget, figures_of
from phantora_async.errors import NotFoldable, NotWritten, OverBudget, PhantoraError, UsageError
from phantora_async.gate.baseline import Baseline
from phantora_async.gate.job_file import STEPS_FOR_TIME, Job
from phantora_async.wording import gib

Runner = Callable[..., Run]
"""``phantora_async.run``, which raises PhantoraError."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A job that has been run, with its verdict."""

    job: Job
    rows: Sequence[Row]
    fits: bool | None
    """False if the GPU's memory did not suffice; None: the run did not come far enough to tell."""
    left_nbytes: int
    """The memory in bytes that is left on the fullest GPU; if negative, at least so much is missing."""
    failure: str
    """The reason why the run failed; empty if it did not."""
    wall_s: float
    steps: int
    """The steps that rank 0 has done."""
    report: str
    """The path of the report; empty if there is none."""
    figures: Mapping[str, float] = field(default_factory=dict)
    ended_in_step: int | None = None
    """The step in which the run ended because a limit of memory was exceeded for certain; None: that did not end it."""

    @property
    def good(self) -> bool:
        return not self.failure and not any(row.broken for row in self.rows)

    @property
    def reason(self) -> str:
        """The reason in one line why the job is not good; empty if it is."""
        if self.fits is False or self.ended_in_step is not None:
            return self.memory_text
        return self.failure.splitlines()[0] if self.failure else broken_text(self.rows)

    @property
    def memory_text(self) -> str:
        """The verdict on memory; empty if the job did not come far enough."""
        if self.ended_in_step is not None:
            over = f"{broken_text(self.rows)} in step {self.ended_in_step}"
            return f"does not fit its budget: {over}, after which the run ended"
        if self.fits is None:
            return ""
        if self.fits:
            return f"fits, {gib(self.left_nbytes)} left"
        return f"does not fit: {gib(-self.left_nbytes)} missing at least" if self.left_nbytes else "does not fit"

    def document(self) -> dict[str, Any]:
        return {
            "job": self.job.name,
            "good": self.good,
            "reason": self.reason,
            "fits": self.fits,
            "left_nbytes": self.left_nbytes if self.fits is not None else None,
            "failure": self.failure or None,
            "rows": [row.document() for row in self.rows],
            "figures": dict(self.figures),
            "steps": self.steps,
            "ended_in_step": self.ended_in_step,
            "wall_s": round(self.wall_s, 3),
            "report": self.report or None,
        }


def verdicts(jobs: Sequence[Job], baseline: Baseline, folder: Path, run: Runner, parallel: int = 1) -> Iterator[Judged]:
    """Yields the verdicts in the jobs' order, each as soon as it and those before it are known. `folder`: each job's
    run directory will be in it. KeyboardInterrupt ends the runs.
    """

    def one(job: Job) -> Judged:
        began = time.monotonic()
        done, failure = tried(job)
        return _judged(job, done, failure, baseline.get(job.name, {}), time.monotonic() - began)

    def tried(job: Job) -> tuple[Run | None, str]:
        """The run, and why it failed."""
        options = dataclasses.replace(job.options, run_dir=str(folder / job.name))
        # Only limits of memory end the run; all limits are judged below, by the whole report.
        limits = {
            option: f"{int(job.limits.by_figure[name])}B"
            for option, name in OPTIONS.items()
            if name in OF_MEMORY and job.limits.by_figure.get(name, 0) >= 1
        }
        named = {**options.given(), **limits}
        failure = ""
        try:
            done: Run | None = run(options.script, options.arguments, **named)
        except OverBudget as error:
            done = error.run
        except NotFoldable as error:
            if job.folded:
                print(f"phantora-async: {job.name}: again with a process for each rank", file=sys.stderr)
                return tried(job.unfolded())
            failure, done = error.text, error.run
        except NotWritten:
            raise  # a full disk is no fault of the job's
        except PhantoraError as error:
            failure, done = error.text, error.run
            if isinstance(error, UsageError):
                failure = "\n".join(filter(None, [error.text, error.hint]))
        return done, failure

    if parallel <= 1:
        yield from map(one, jobs)
        return
    together = Together()
    with ThreadPoolExecutor(parallel, initializer=together.join) as pool:
        try:
            yield from pool.map(one, jobs)
        except BaseException:
            together.interrupt()
            pool.shutdown(cancel_futures=True)
            raise


def _judged(job: Job, done: Run | None, failure: str, baseline: Mapping[str, float], wall_s: float) -> Judged:
    if done is None:
        return Judged(job, (), None, 0, failure or "the run has no report", wall_s, 0, "")
    simulated = done.report["simulated"]
    if not failure and not done.used_gpu:
        failure = "the job used no emulated GPU"
    fits, left = None, 0
    verdict = simulated["memory"].get("verdict")
    if verdict is not None and done.used_gpu and (not failure or not verdict["fits"]):
        fits = bool(verdict["fits"])
        left = int(verdict["left_nbytes"]) if fits else -int(verdict["missing_nbytes"])
    ended = None if failure else ended_over_budget(done.report)
    if ended is not None:
        fits, left = None, 0  # the script might have needed more
    rows = [] if failure else job.limits.rows(done.report)
    if not failure and ended is None:
        rows += job.rules.rows(done.report, baseline)
    steps = simulated["ranks"][0].get("steps", 0) if simulated["ranks"] else 0
    figures = {} if failure else figures_of(done.report)
    if steps < STEPS_FOR_TIME:  # the warm-up's times are no baseline
        figures = {name: value for name, value in figures.items() if name not in OF_TIME}
    return Judged(job, rows, fits, left, failure, wall_s, steps, str(done.path), figures, ended)
