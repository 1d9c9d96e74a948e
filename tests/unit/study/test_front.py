"""The Pareto front, by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from phantora_async.budget import Limits
from phantora_async.spending.job import Job
from phantora_async.study.outcome.front import Entry, Outcome
from phantora_async.study.trials.goal import Goal
from phantora_async.study.trials.results import DONE, NO_MEMORY, Result
from phantora_async.study.trials.trial import Trial
from profiles import Price

PRICE = Price(2.0, 2.0, "$", "a page", "2026")


def entry(name: str, step_s: float, memory: float, gpus: int = 8, **changed: Any) -> Entry:
    job = Job("h100", gpus, step_s, changed.get("step_j"), changed.get("tokens"))
    result = Result(name, name, "run", changed.get("state", DONE), "", {"memory": memory, "step": step_s}, job)
    trial = cast(Trial, SimpleNamespace(name=name, tokens_per_step=None))
    return Entry(trial, result, Goal(changed.get("limits", Limits({}))), changed.get("price", PRICE))


def names(found: Outcome) -> list[str]:
    return [one.result.name for one in found.front]


def test_nobody_is_better_in_all() -> None:
    trials = [
        entry("fast", 1.0, 70),
        entry("small", 3.0, 30),
        entry("between", 2.0, 50),
        entry("slow and large", 2.5, 60),
        entry("no faster, larger", 1.0, 71),
        entry("small, too", 3.0, 30),
        entry("does not fit", 0.1, 10, state=NO_MEMORY),
        entry("over its limit", 0.5, 40, limits=Limits({"memory": 39.0})),
    ]
    found = Outcome(trials, ["time", "memory"])
    assert names(found) == ["fast", "between", "small", "small, too"]
    assert found.best("memory").result.name == "small"


def test_money_is_of_all_gpus() -> None:
    """Twice the GPUs at 1.5 times the speed: sooner, and dearer."""
    trials = [entry("8", 3.0, 50), entry("16", 2.0, 50, gpus=16), entry("32", 2.0, 50, gpus=32)]
    found = Outcome(trials, ["time", "memory", "money"])
    assert names(found) == ["16", "8"]
    assert found.value(trials[0], "money") == pytest.approx(2 * 8 * 3 / 3600)


def test_tokens_count_where_all_have_them() -> None:
    """Half as long a step with a quarter of the tokens is slower."""
    trials = [entry("large", 2.0, 50, tokens=4e6), entry("small", 1.0, 50, tokens=1e6)]
    found = Outcome(trials, ["time"])
    assert names(found) == ["large"]
    assert found.value(trials[0], "time") == 0.5
    without = Outcome([*trials, entry("unknown", 0.5, 50)], ["time"])
    assert names(without) == ["unknown"], "by steps"


def test_what_is_not_known_of_all_is_not_compared() -> None:
    trials = [entry("a", 1.0, 50, price=None), entry("b", 2.0, 40, step_j=5.0)]
    found = Outcome(trials, ["time", "memory", "money", "energy"])
    assert found.objectives == ["time", "memory"]
    assert Outcome([], ["time"]).front == []


def with_interval(found: Entry, high_s: float) -> Entry:
    return replace(found, result=replace(found.result, figures={**found.result.figures, "step_high": high_s}))


def test_trials_within_the_interval_are_one_group_with_the_cheapest_first() -> None:
    """The fastest step takes 1 s, at most 1.2 s: 1.1 s is no slower for all that is known, and half as dear."""
    fastest = with_interval(entry("fastest", 1.0, 50, gpus=16), 1.2)
    trials = [fastest, entry("cheaper", 1.1, 50), entry("slower", 1.3, 40)]
    found = Outcome(trials, ["time", "memory", "money"])
    assert [one.result.name for one in found.tied] == ["cheaper", "fastest"]
    assert Outcome([entry("fastest", 1.0, 50), *trials[1:]], ["time"]).tied == [], (
        "without an interval nothing is equal"
    )
    assert Outcome([fastest, trials[2]], ["time"]).tied == [], "nobody else"


def test_of_trials_with_as_much_memory_the_cheapest_is_named() -> None:
    trials = [entry("fast", 1.0, 30, gpus=16), entry("cheap", 1.5, 30)]
    assert Outcome(trials, ["time", "memory", "money"]).best("memory").result.name == "cheap"
