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
from phantora_async.comparison.causes import of_memory, of_time
from phantora_async.errors import NotFoldable, NotWritten, OverBudget, PhantoraError, UsageError
from phantora_async.gate.baseline import Baseline, Stored
from phantora_async.gate.digest import changed_setup, compared, digest
from phantora_async.gate.job_file import STEPS_FOR_TIME, Job
from phantora_async.wording import gib

MOST_SETTINGS = 5
"""The most changed settings that a line names."""
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
    changed_setup: Sequence[str] = ()
    """The settings that differ from the baseline's, so that figures cannot be compared with it."""
    notes: Sequence[str] = ()
    """The differences from the baseline's setup that keep nothing from being compared."""
    causes: Sequence[str] = ()
    """The reasons why figures that break a rule have changed."""
    kept: str = ""
    """The time of the earlier run whose result this is; empty if the job was run now."""
    digest: Mapping[str, Any] | None = None
    """The facts that a baseline keeps beside the figures; None: the run does not tell them."""

    @property
    def good(self) -> bool:
        return not self.failure and not self.changed_setup and not any(row.broken for row in self.rows)

    @property
    def reason(self) -> str:
        """The reason in one line why the job is not good; empty if it is."""
        if self.fits is False or self.ended_in_step is not None:
            return self.memory_text
        if self.failure:
            return self.failure.splitlines()[0]
        return "; ".join(filter(None, [broken_text(self.rows), self.setup_text, *self.causes]))

    @property
    def setup_text(self) -> str:
        """Says that the baseline is of another setup; empty if it is not."""
        if not self.changed_setup:
            return ""
        changed = ", ".join(self.changed_setup[:MOST_SETTINGS])
        if len(self.changed_setup) > MOST_SETTINGS:
            changed += f" and {len(self.changed_setup) - MOST_SETTINGS} more"
        return f"not comparable with its baseline: {changed} (--update stores this setup)"

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
        text = f"does not fit: {gib(-self.left_nbytes)} missing at least" if self.left_nbytes else "does not fit"
        return "; ".join(filter(None, [text, broken_text(self.rows)]))

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
            "changed_setup": list(self.changed_setup),
            "notes": list(self.notes),
            "causes": list(self.causes),
            "wall_s": round(self.wall_s, 3),
            "kept": self.kept or None,
            "report": self.report or None,
        }


def verdicts(
    jobs: Sequence[Job], baseline: Baseline, folder: Path, run: Runner, parallel: int = 1, *, again: bool = False
) -> Iterator[Judged]:
    """Yields the verdicts in the jobs' order, each as soon as it and those before it are known. `folder`: each job's
    run directory will be in it. A job that is known is run only with `again`. KeyboardInterrupt ends the runs.
    """

    def one(job: Job) -> Judged:
        began = time.monotonic()
        done, failure = tried(job)
        return _judged(job, done, failure, baseline.get(job.name, Stored({})), time.monotonic() - began)

    def tried(job: Job) -> tuple[Run | None, str]:
        """The run, and why it failed."""
        options = dataclasses.replace(job.options, run_dir=str(folder / job.name))
        # Only limits of memory end the run; all limits are judged below, by the whole report.
        limits = {
            option: f"{int(job.limits.by_figure[name])}B"
            for option, name in OPTIONS.items()
            if name in OF_MEMORY and job.limits.by_figure.get(name, 0) >= 1
        }
        named = {**options.given(), **limits, "again": again}
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


def _judged(job: Job, done: Run | None, failure: str, stored: Stored, wall_s: float) -> Judged:
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
    # A job that is out of memory may have exceeded its own limit before.
    rows = job.limits.rows(done.report) if not failure else job.limits.exceeded(done.report) if fits is False else []
    kept = None if failure or ended is not None else digest(done.report)
    refused, notes, reasons = _against(job, stored, kept)
    if not failure and ended is None and not refused:
        rows += job.rules.rows(done.report, stored.figures)
    steps = simulated["ranks"][0].get("steps", 0) if simulated["ranks"] else 0
    figures = {} if failure else figures_of(done.report)
    if steps < STEPS_FOR_TIME:  # the warm-up's times are no baseline
        figures = {name: value for name, value in figures.items() if name not in OF_TIME}
    worse = {row.figure.name for row in rows if row.broken and row.against == "baseline"}
    causes = list(dict.fromkeys(text for names, texts in reasons if worse.intersection(names) for text in texts))
    if worse and not stored.figures:
        causes.append("the baseline does not have this job (--update stores it)")
    return Judged(
        job,
        rows,
        fits,
        left,
        failure,
        wall_s,
        steps,
        str(done.path),
        figures,
        ended,
        changed_setup=refused,
        notes=notes,
        causes=causes,
        kept=done.kept,
        digest=kept,
    )


Reasons = Sequence[tuple[Sequence[str], Sequence[str]]]
"""Names of figures, with sentences that say why they have changed."""


def _against(job: Job, stored: Stored, kept: Mapping[str, Any] | None) -> tuple[Sequence[str], Sequence[str], Reasons]:
    """Compares a run with the job as it was stored: the settings that keep figures from being compared, others, and
    what has changed.
    """
    if not job.rules.rules or kept is None or stored.digest is None:
        return (), (), ()
    found = compared(stored.digest, kept)
    refused, said = changed_setup(found)
    return (
        refused,
        said,
        ((OF_TIME, [*filter(None, of_time(found, 1))]), (OF_MEMORY, [*filter(None, of_memory(found, 1))])),
    )
