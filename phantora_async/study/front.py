"""Which trials are best: those of which no other one is better in all objectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from phantora_async.budget import Limits, broken_text
from phantora_async.spending.bill import MILLION, bill
from phantora_async.spending.job import Job
from phantora_async.study.results import Result
from phantora_async.study.study_file import ENERGY, MEMORY, MONEY, TIME, Study
from phantora_async.study.trial import Trial
from profiles import Price


@dataclass(frozen=True)
class Entry:
    """A trial with what came of it."""

    trial: Trial
    result: Result
    limits: Limits
    price: Price | None

    @cached_property
    def job(self) -> Job | None:
        job = self.result.job
        if job is None or self.trial.tokens_per_step is None:
            return job
        return replace(job, tokens_per_step=self.trial.tokens_per_step, tokens_from="the study")

    @cached_property
    def unfit(self) -> str:
        """Why it is not compared; empty if it is."""
        if not self.result.good:
            return f"{self.result.state}: {self.result.reason}"
        return broken_text(self.limits.rows_of(self.result.figures))

    @cached_property
    def bill(self) -> dict[str, Any] | None:
        return None if self.job is None else bill(self.job, self.price)

    def value(self, objective: str, by_tokens: bool) -> float | None:
        """The less the better. Of a step, or `by_tokens` of a million tokens; None: not known."""
        if self.job is None or self.bill is None or (by_tokens and not self.job.tokens_per_step):
            return None
        if objective == MEMORY:
            return self.result.figures.get("memory")
        if objective == TIME:
            return self.job.step_s * (MILLION / self.job.tokens_per_step if by_tokens else 1.0)  # type: ignore[operator]
        spent = self.bill["million_tokens" if by_tokens else "step"]
        if objective == MONEY:
            return None if spent["money"] is None else sum(spent["money"]) / 2
        assert objective == ENERGY, objective
        return None if spent["kwh"] is None else float(spent["kwh"])


@dataclass(frozen=True)
class Outcome:
    """All that a sweep has found."""

    entries: Sequence[Entry]
    """In the study's order; of a sweep that was ended those that are known."""
    asked: Sequence[str]
    """Objectives."""

    @cached_property
    def fit(self) -> list[Entry]:
        return [one for one in self.entries if not one.unfit]

    @cached_property
    def by_tokens(self) -> bool:
        """It is known of all how many tokens a step has."""
        return bool(self.fit) and all(one.job is not None and one.job.tokens_per_step for one in self.fit)

    @cached_property
    def objectives(self) -> list[str]:
        """Those that are known of all."""
        if not self.fit:
            return []
        return [name for name in self.asked if all(self.value(one, name) is not None for one in self.fit)]

    def value(self, entry: Entry, objective: str) -> float | None:
        return entry.value(objective, self.by_tokens)

    @cached_property
    def front(self) -> list[Entry]:
        """Sorted by the first objective."""
        if not self.objectives:
            return []
        points = sorted(
            ((tuple(self._known(one, name) for name in self.objectives), number) for number, one in enumerate(self.fit))
        )
        front: list[tuple[tuple[float, ...], int]] = []
        for point, number in points:  # what could be better in all stands before it
            if not any(_better(other, point) for other, _ in front):
                front.append((point, number))
        return [self.fit[number] for _, number in front]

    def best(self, objective: str) -> Entry:
        """Of several that are equal the one that is better in the other objectives."""
        others = [name for name in self.objectives if name != objective]
        return min(self.front, key=lambda one: [self._known(one, name) for name in (objective, *others)])

    def _known(self, entry: Entry, objective: str) -> float:
        value = self.value(entry, objective)
        assert value is not None, "an objective is known of all"
        return value


def _better(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """In no objective worse, and in one better."""
    return one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))


def outcome(study: Study, results: Mapping[str, Result], prices: Mapping[str, Price]) -> Outcome:
    entries = [
        Entry(trial, results[trial.key], study.limits, prices.get(trial.gpu.name))
        for trial in study.trials
        if trial.key in results
    ]
    return Outcome(entries, study.objectives)
