"""Chooses trials with Optuna: TPE, NSGA-II for several objectives, or at random.

The choice is a function of the study, its seed and the results of the trials chosen before. So nothing of Optuna's is
kept: a sweep that goes on asks again, is told what the store has, and comes to the same next trials.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from phantora_async.errors import EnvironmentUnusable
from phantora_async.study.trials.search_file import NSGA2, TPE, Chosen, Range, Search

EXCESS = "excess"
POPULATION = 20


@dataclass(frozen=True, slots=True)
class Asked:
    chosen: Chosen
    handle: Any
    """The trial object of Optuna."""


@dataclass(frozen=True, slots=True)
class Told:
    """The result of a trial, as the sampler needs it."""

    losses: Sequence[float]
    """The loss of each objective, the less the better; ignored if there is an excess."""
    excess: float = 0.0
    """The amount by which limits are broken; larger for a trial that did not run at all."""
    pruned: bool = False
    """True if it ended early, because its loss was no better than the best one."""


class Sampler:
    def __init__(self, search: Search, objectives: int) -> None:
        """Starts Optuna's study. Raises EnvironmentUnusable without Optuna."""
        try:
            import optuna
        except ImportError:
            raise EnvironmentUnusable(
                "[search] needs Optuna, which is not installed", "pip install 'phantora-async[optuna]'"
            ) from None
        self._search = search
        self._states = optuna.trial.TrialState
        self._objectives = objectives
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            warnings.simplefilter("ignore", FutureWarning)  # versions 4 and 5 both know constraints_func
            samplers, seed = optuna.samplers, search.seed
            chosen: Any
            if search.sampler == TPE:
                chosen = samplers.TPESampler(
                    seed=seed,
                    multivariate=True,
                    constant_liar=True,
                    constraints_func=_constraints,
                    n_startup_trials=min(10, max(2, search.trials // 4)),
                )
            elif search.sampler == NSGA2:
                population = min(POPULATION, max(4, search.trials // 4))
                chosen = samplers.NSGAIISampler(seed=seed, population_size=population, constraints_func=_constraints)
            else:
                chosen = samplers.RandomSampler(seed=seed)
            self._study = optuna.create_study(directions=["minimize"] * objectives, sampler=chosen)

    def ask(self) -> Asked:
        handle = self._study.ask()
        return Asked({key: self._suggested(handle, key) for key in self._search.ranges}, handle)

    def _suggested(self, handle: Any, key: str) -> Any:
        choices = self._search.ranges[key]
        if isinstance(choices, Range):
            suggest = handle.suggest_int if choices.whole else handle.suggest_float
            step = {} if choices.step is None else {"step": choices.step}
            return suggest(key, choices.low, choices.high, log=choices.log, **step)
        if all(type(one) in (int, float) for one in choices):  # neighbours are alike
            return sorted(choices)[handle.suggest_int(key, 0, len(choices) - 1)]
        return choices[handle.suggest_categorical(key, list(range(len(choices))))]

    def tell(self, asked: Asked, told: Told) -> None:
        asked.handle.set_user_attr(EXCESS, told.excess)
        if told.pruned:  # Optuna takes it for worse than what ended well, and compares it with what was pruned as well
            asked.handle.report(told.losses[0], 1)
            self._study.tell(asked.handle, state=self._states.PRUNED)
            return
        losses = [math.inf] * self._objectives if told.excess else list(told.losses)
        self._study.tell(asked.handle, losses, state=self._states.COMPLETE)


def _constraints(trial: Any) -> tuple[float]:
    """The constraints for Optuna, which takes values above 0 for broken."""
    return (float(trial.user_attrs.get(EXCESS, 0.0)),)
