"""Finds the best trials: those for which no other one is better in all objectives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from phantora_async.spending.bill import bill
from phantora_async.spending.job import Job
from phantora_async.study.trials.goal import (
    JOB,
    MEMORY,
    MFU,
    MILLION_TOKENS,
    MONEY,
    MORE_IS_BETTER,
    RATE,
    STEP,
    TIME,
    Goal,
)
from phantora_async.study.trials.results import HIGH, Result
from phantora_async.study.trials.trial import Trial
from profiles import Price

HOUR_S = 3600.0


@dataclass(frozen=True)
class Entry:
    """A trial with its result."""

    trial: Trial
    result: Result
    goal: Goal
    price: Price | None

    @cached_property
    def job(self) -> Job | None:
        job = self.result.job
        if job is None or self.trial.tokens_per_step is None:
            return job
        return replace(job, tokens_per_step=self.trial.tokens_per_step, tokens_from="the study")

    @cached_property
    def unfit(self) -> str:
        """The reason why the trial is not compared; empty if it is."""
        if not self.result.good:
            return f"{self.result.state}: {self.result.reason}"
        return "; ".join(text for text, _ in self.excesses)

    @cached_property
    def excesses(self) -> list[tuple[str, float]]:
        """The limits that it breaks, each with the share by which it does."""
        return list(self.goal.excesses(self.result.figures, self.bill))

    @cached_property
    def bill(self) -> dict[str, Any] | None:
        return None if self.job is None else bill(self.job, self.price, self.goal.question)

    def value(self, objective: str, of: str) -> float | None:
        """The value of the objective; None: not known. `of`: the amount of work that time, money and energy are for, as
        ``goal`` names it.
        """
        spent = None if self.bill is None else self.bill[of]
        if self.job is None or spent is None:
            return None
        if objective in (MEMORY, MFU):
            return self.result.figures.get(objective)
        if objective == TIME:
            return float(spent["gpu_hours"]) * HOUR_S / self.job.gpus
        if objective == RATE:
            return self.job.tokens_per_step and self.job.tokens_per_step / self.job.step_s
        if objective == MONEY:
            return None if spent["money"] is None else sum(spent["money"]) / 2
        return None if spent["kwh"] is None else float(spent["kwh"])

    def loss(self, objective: str, of: str) -> float | None:
        """The objective as a number that is the better the less it is."""
        value = self.value(objective, of)
        return -value if value is not None and objective in MORE_IS_BETTER else value


@dataclass(frozen=True)
class Outcome:
    """All that a sweep has found."""

    entries: Sequence[Entry]
    """The trials in the study's order; if the sweep was interrupted, those that are known."""
    asked: Sequence[str]
    """The objectives that the study asks for."""

    @cached_property
    def fit(self) -> list[Entry]:
        return [one for one in self.entries if not one.unfit]

    @cached_property
    def of(self) -> str:
        """The amount of work that time, money and energy are for: the largest one that is known of all trials."""
        for of in (JOB, MILLION_TOKENS):
            if self.fit and all(one.bill is not None and one.bill[of] is not None for one in self.fit):
                return of
        return STEP

    @property
    def by_tokens(self) -> bool:
        """True if the number of tokens of a step is known for all trials."""
        return self.of != STEP

    @cached_property
    def objectives(self) -> list[str]:
        """The objectives that are known for all trials."""
        if not self.fit:
            return []
        return [name for name in self.asked if all(self.value(one, name) is not None for one in self.fit)]

    def value(self, entry: Entry, objective: str) -> float | None:
        return entry.value(objective, self.of)

    @cached_property
    def front(self) -> list[Entry]:
        """The best trials, sorted by the first objective."""
        if not self.objectives:
            return []
        points = sorted(
            ((tuple(self._known(one, name) for name in self.objectives), number) for number, one in enumerate(self.fit))
        )
        front: list[tuple[tuple[float, ...], int]] = []
        for point, number in points:  # trials that could be better in all objectives are sorted before it
            if not any(_better(other, point) for other, _ in front):
                front.append((point, number))
        return [self.fit[number] for _, number in front]

    def best(self, objective: str) -> Entry:
        """The best trial in one objective. Among equal ones it is the one that is better in the other objectives, the
        cheaper one first.
        """
        others = sorted((name for name in self.objectives if name != objective), key=lambda name: name != MONEY)
        return min(self.front, key=lambda one: [self._known(one, name) for name in (objective, *others)])

    @cached_property
    def tied(self) -> list[Entry]:
        """The trials whose time differs from the best one's by less than that one's 90% interval reaches upwards, the
        cheapest first; empty if there is no other one, or if the interval is not known.
        """
        if TIME not in self.objectives:
            return []
        best = min(self.fit, key=lambda one: self._known(one, TIME))
        step_s, high_s = (best.result.figures.get(name) for name in (STEP, HIGH))
        if not step_s or high_s is None:
            return []
        most = self._known(best, TIME) * high_s / step_s
        found = [one for one in self.fit if self._known(one, TIME) <= most]
        order = [MONEY, TIME] if MONEY in self.objectives else [TIME]
        return sorted(found, key=lambda one: [self._known(one, name) for name in order]) if len(found) > 1 else []

    def _known(self, entry: Entry, objective: str) -> float:
        loss = entry.loss(objective, self.of)
        assert loss is not None, "an objective is known of all"
        return loss


def _better(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Returns true if `one` is in no objective worse than `other`, and better in at least one."""
    return one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))


def outcome(goal: Goal, trials: Iterable[Trial], results: Mapping[str, Result], prices: Mapping[str, Price]) -> Outcome:
    entries = [
        Entry(trial, results[trial.key], goal, prices.get(trial.gpu.name)) for trial in trials if trial.key in results
    ]
    return Outcome(entries, goal.objectives)
