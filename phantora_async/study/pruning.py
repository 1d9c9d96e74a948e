"""Decides which trials need not be run to their end, or not at all.

By memory: a run ends as soon as it exceeds a limit of memory. A trial is not begun if it has more of a setting that
needs memory (`more_memory` in the study) than one that does not fit, or if it is the program of one on a GPU no larger.
One that failed although there was enough memory, in pieces (fragmentation), rules out only the same program. By time
(`prune = true`): a run ends when so many of its steps have been so slow that it is certain to be no better than the
best trial that is known. A run that is recorded for other machines goes on to its end.

Results of pruned trials are kept like others. They are tried again when the reason no longer holds: when a limit is
larger now, or the trial that they were compared with is no longer part of the study.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from phantora_async.budget import OF_MEMORY, Limits
from phantora_async.options import RunOptions
from phantora_async.study.trials.goal import MONEY, Goal
from phantora_async.study.trials.results import NO_MEMORY, NOT_RUN, PRUNED, Result
from phantora_async.study.trials.trial import Trial
from profiles import Price

SLOWER = 1 + 1e-9
"""The factor on the best trial's step time above which a run is ended: one that is just as good is not."""


@dataclass
class Pruning:
    goal: Goal = field(default_factory=Goal)
    prices: Mapping[str, Price] = field(default_factory=dict)
    trials: dict[str, Trial] = field(default_factory=dict)
    """All trials of the study that are known by now, by their keys."""

    def limits(self, trial: Trial, results: Mapping[str, Result]) -> Limits:
        """The limits for a run of this trial alone."""
        limits = {name: value for name, value in self.goal.limits.by_figure.items() if name != "mfu"}
        best_s = self._step_to_beat(trial, results)
        if best_s < limits.get("step", math.inf):
            limits["step"] = best_s * SLOWER
        return Limits(limits)

    def not_begun(self, trial: Trial, results: Mapping[str, Result]) -> Result | None:
        """The result that follows for this trial from trials that do not fit; None if none follows."""
        for key, other in self.trials.items():
            result = results.get(key)
            if result is None or result.how == NOT_RUN or not self._too_large(result):
                continue
            if result.state == NO_MEMORY and _no_larger(trial, other):
                fails = "fails by fragmentation" if result.fragmented else "does not fit"
                reason = f"{result.name} {fails}, on a GPU with at least as much memory"
                return Result(trial.key, trial.name, NOT_RUN, NO_MEMORY, reason)
            if not result.fragmented and (more := self._more(trial, other)):
                reason = f"{result.name} does not fit, and this has more of {', '.join(more)}"
                return Result(trial.key, trial.name, NOT_RUN, PRUNED, reason)
        return None

    def holds(self, trial: Trial, result: Result, results: Mapping[str, Result]) -> bool:
        """Returns true if a trial that was pruned, perhaps by an earlier sweep, is still to be pruned."""
        if result.how == NOT_RUN:
            return self.not_begun(trial, results) is not None
        if result.state != PRUNED:
            return True
        limits = self.limits(trial, results).by_figure
        return any(value > limits.get(name, math.inf) for name, value in result.figures.items())

    def in_order(self, trials: list[Trial]) -> list[Trial]:
        """The trials, those that need less memory first."""
        return sorted(trials, key=lambda one: [_number(one.chosen.get(key)) or 0.0 for key in self.goal.more_memory])

    def loss(self, trial: Trial, step_s: float) -> float:
        """The loss of the objective, which is the better the less it is, up to a factor that all trials share."""
        tokens, weight = trial.tokens_per_step, 1.0
        assert tokens is not None, "the study says how many tokens a step has"
        if self.goal.objectives == (MONEY,):
            price = self.prices.get(trial.gpu.name)
            weight = math.nan if price is None else trial.gpus * (price.low + price.high)
        return step_s * weight / tokens

    def _step_to_beat(self, trial: Trial, results: Mapping[str, Result]) -> float:
        """The step time in seconds that this trial must beat; infinite if there is none."""
        if not self.goal.prune:
            return math.inf
        known = [
            self.loss(other, result.figures["step"])
            for key, other in self.trials.items()
            if key != trial.key and (result := results.get(key)) is not None and self._good(result)
        ]
        best, of_a_second = min(filter(math.isfinite, known), default=math.inf), self.loss(trial, 1.0)
        return best / of_a_second if math.isfinite(of_a_second) else math.inf

    def _good(self, result: Result) -> bool:
        """Returns true if the result is within all limits, so that a trial that it beats is really beaten."""
        return (
            result.good
            and "step" in result.figures
            and not any(row.broken for row in self.goal.limits.rows_of(result.figures))
        )

    def _too_large(self, result: Result) -> bool:
        if result.state == NO_MEMORY:
            return True
        rows = self.goal.limits.rows_of(result.figures) if result.state != PRUNED or result.figures else []
        return any(row.broken and row.value is not None and row.figure.name in OF_MEMORY for row in rows)

    def _more(self, trial: Trial, than: Trial) -> list[str]:
        """The settings of which `trial` has more; empty if any other setting differs, or it has less of one."""
        keys = self.goal.more_memory
        mine, others = ({key: value for key, value in one.chosen.items() if key not in keys} for one in (trial, than))
        if mine != others:
            return []
        more = []
        for key in keys:
            has, had = _number(trial.chosen.get(key)), _number(than.chosen.get(key))
            if has is None or had is None:
                if trial.chosen.get(key) != than.chosen.get(key):
                    return []
            elif has < had:
                return []
            elif has > had:
                more.append(key)
        return more


def limited(options: RunOptions, limits: Limits) -> RunOptions:
    """The options with these limits."""
    values = limits.by_figure
    memory, allocated, step = (values.get(name) for name in ("memory", "allocated", "step"))
    return replace(
        options,
        max_memory=None if memory is None else f"{memory:.0f}B",
        max_allocated=None if allocated is None else f"{allocated:.0f}B",
        max_step_time=None if step is None else f"{1e9 * step:.3f}ns",
    )


def _no_larger(trial: Trial, than: Trial) -> bool:
    """Returns true if `trial` is the program of `than`, on a GPU with no more memory."""
    return trial.program == than.program and trial.gpu.memory.total_nbytes <= than.gpu.memory.total_nbytes


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
