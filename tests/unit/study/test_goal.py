"""The whole job: how long it is, what it costs, and by when it must be done."""

from __future__ import annotations

from typing import Any

import pytest

from phantora_async.errors import UsageError
from phantora_async.study.sweeping import sweep
from phantora_async.study.trials.study_file import read

from .conftest import Runs

STUDY: dict[str, Any] = {
    "tokens_per_step": 1000,
    "tokens": "1B",
    "run": {"script": "train.py", "world_size": 2},
    "grid": {"--fast": [False, True]},
}
"""A million steps of 0.4 s: 111 hours, or 4.63 days; of two H200s."""


def test_a_deadline_and_a_budget_of_money_are_limits(runs: Runs) -> None:
    assert [one.unfit for one in sweep(STUDY | {"deadline": "3d"}).trials] == ["4.6 days of 3.0 days", ""]
    high = sweep(STUDY).trials[1].price
    assert high is not None
    most = high.high * 2 * 1e6 * 0.2 / 3600  # of the fast one
    costly, cheap = sweep(STUDY | {"max_money": round(1.1 * most, 2)}).trials
    assert cheap.unfit == ""
    assert costly.unfit.startswith(f"{high.currency}1,")


def test_time_is_of_the_job_with_what_goodput_takes(runs: Runs) -> None:
    swept = sweep(STUDY | {"goodput": "80%"})
    assert swept.document()["by"] == "job"
    assert swept.document()["trials"][0]["values"]["time"] == pytest.approx(0.4e6 / 0.8)
    assert "139 hours" in str(swept) or "5.8 days" in str(swept)


def test_rates_are_the_better_the_more(runs: Runs) -> None:
    swept = sweep(STUDY | {"objectives": ["tokens/s", "mfu"]})
    assert [one.trial.name for one in swept.front] == ["fast=true"]
    assert swept.document()["trials"][1]["values"] == {"tokens/s": pytest.approx(5000), "mfu": 0.4}


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"deadline": "soon"}, "deadline: expected a time such as 30d or 12h, found 'soon'"),
        ({"deadline": "0d"}, "deadline: expected a time"),
        ({"tokens": "many"}, "tokens: .*expected a number above 0|tokens many"),
        ({"goodput": "200%"}, "goodput.*expected a share above 0"),
        ({"max_money": -3}, "max_money: expected a number"),
    ],
)
def test_goals_that_are_wrong(runs: Runs, more: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        read(STUDY | more)


@pytest.mark.parametrize("key", ["deadline", "goodput", "max_money"])
def test_what_is_of_a_job_needs_to_know_how_long_it_is(runs: Runs, key: str) -> None:
    study = {name: value for name, value in STUDY.items() if name != "tokens"}
    value: Any = {"deadline": "3d", "goodput": "90%", "max_money": 100}[key]
    with pytest.raises(UsageError, match=f"{key}: is of a whole job"):
        read(study | {key: value})
