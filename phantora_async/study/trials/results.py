"""The result of one trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from phantora_async.budget import Limits, broken_text, ended_over_budget, figures_of
from phantora_async.figures import INTERVAL_HIGH, INTERVAL_LOW
from phantora_async.spending.job import Job, job_of
from phantora_async.study.trials.trial import Trial
from phantora_async.wording import EXPANDABLE, gib, growth_text

DONE, NO_MEMORY, PRUNED, FAILED = "done", "out of memory", "pruned", "failed"
"""PRUNED: the trial ended, or was not begun, because it cannot be one that is wanted."""
STATES = (DONE, NO_MEMORY, PRUNED, FAILED)
FRAGMENTED = "fragmented"
"""The beginning of the reason of a trial whose tensors would have fitted."""
LOW, HIGH = "step_low", "step_high"
"""The names of the ends of the step's 90% interval among a result's figures, in seconds."""
RUN, REPLAY, NOT_RUN = "run", "replay", "not run"


@dataclass(frozen=True, slots=True)
class Result:
    key: str
    """The key of the trial."""
    name: str
    how: str
    """RUN, REPLAY, or NOT_RUN if the result is known without either."""
    state: str
    reason: str
    """The reason why there are no figures; if there are figures, a note on them, or empty."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """The figures by their names in ``budget``, and LOW and HIGH: bytes, seconds, shares. For a pruned trial they are
    lower bounds.
    """
    job: Job | None = None
    """The job with its tokens as the script has logged them."""
    report: str = ""
    wall_s: float = 0.0

    @property
    def fragmented(self) -> bool:
        """True if there was enough memory, but in pieces that were too small: that says nothing of another program."""
        return self.state == NO_MEMORY and self.reason.startswith(FRAGMENTED)

    @property
    def good(self) -> bool:
        return self.state == DONE


def result_of(trial: Trial, how: str, report: Mapping[str, Any], path: str, wall_s: float, note: str = "") -> Result:
    """The result of a run that ended well."""
    job = job_of(report)
    if job is None:
        return Result(
            trial.key, trial.name, how, FAILED, "no steps were found, or no GPU was used", {}, None, path, wall_s
        )
    memory = report["simulated"].get("memory", {})
    verdict = memory.get("verdict")
    if verdict is not None and not verdict["fits"]:
        reason = _no_memory(verdict)
        return Result(trial.key, trial.name, how, NO_MEMORY, reason, {}, None, path, wall_s)
    growth = memory.get("growth")
    notes = [*([growth_text(growth)] if growth else []), *([note] if note else [])]
    figures = figures_of(report) | _interval(report)
    return Result(trial.key, trial.name, how, DONE, "; ".join(notes), figures, job, path, wall_s)


def _interval(report: Mapping[str, Any]) -> dict[str, float]:
    """The ends of the 90% interval of the step time; empty if it has none."""
    ends = {LOW: INTERVAL_LOW.value(report["simulated"]), HIGH: INTERVAL_HIGH.value(report["simulated"])}
    return {name: value for name, value in ends.items() if value is not None}


def pruned_of(trial: Trial, limits: Limits, report: Mapping[str, Any], path: str, wall_s: float) -> Result | None:
    """The result of a run that one of its limits has ended; None if it went on to its end."""
    if ended_over_budget(report) is None:
        return None
    rows = [row for row in limits.rows(report) if row.value is not None]
    figures = {row.figure.name: row.value for row in rows if row.value is not None}
    return Result(trial.key, trial.name, RUN, PRUNED, broken_text(rows), figures, None, path, wall_s)


def failure_of(
    trial: Trial, how: str, failure: str, report: Mapping[str, Any] | None, path: str, wall_s: float
) -> Result:
    """The result of a run that failed. `report`: None if there is none."""
    memory = {} if report is None else report["simulated"].get("memory", {})
    verdict, growth = memory.get("verdict"), memory.get("growth")
    if verdict is not None and not verdict["fits"]:
        reason = _no_memory(verdict)
        if growth:
            reason += f"; {growth_text(growth)}"
        return Result(trial.key, trial.name, how, NO_MEMORY, reason, {}, None, path, wall_s)
    return Result(trial.key, trial.name, how, FAILED, failure.splitlines()[0], {}, None, path, wall_s)


def _no_memory(verdict: Mapping[str, Any]) -> str:
    """Says why a job does not fit. `verdict`: the report's."""
    missing, unused = verdict["missing_nbytes"], verdict.get("unused_nbytes", 0)
    if others := verdict.get("others_nbytes", 0):
        owner = verdict["rank"]
        return f"{gib(missing)} missing on the GPU of rank {owner}, {gib(others)} of which other ranks hold"
    if missing or not unused:
        return f"{gib(missing)} missing at least" if missing else "it does not fit"
    reason = f"{FRAGMENTED}: {gib(unused)} of the allocator's cache are in pieces that are too small"
    return f"{reason}; with {EXPANDABLE} the request would have fitted" if verdict.get("fragmented") else reason
