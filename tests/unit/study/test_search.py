"""`[search]`: what samplers choose, what they are told, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phantora_async.errors import UsageError
from phantora_async.options import RunOptions
from phantora_async.study.sweeping import sweep
from phantora_async.study.trials.study_file import read

from .conftest import Runs

RUN: dict[str, Any] = {"script": "train.py", "world_size": 2}


def searching(ranges: dict[str, Any], objectives: tuple[str, ...] = ("time",), **search: Any) -> dict[str, Any]:
    return {"run": RUN, "objectives": list(objectives), "search": {"ranges": ranges} | search}


def number(options: RunOptions, name: str) -> float:
    arguments = list(options.arguments)
    return float(arguments[arguments.index(name) + 1])


@pytest.fixture
def bowl(runs: Runs) -> Runs:
    """A step is shortest at --a 40, --b 10; memory grows with --a, and there is too little of it from 60 on."""
    pytest.importorskip("optuna")

    def change(options: RunOptions, simulated: dict[str, Any]) -> None:
        a, b = number(options, "--a"), number(options, "--b")
        simulated["step"]["median_ns"] = round(1e8 + 1e5 * ((a - 40) ** 2 + (b - 10) ** 2))
        for rank in simulated["ranks"]:
            rank["memory"] = {"reserved_peak_nbytes": int(a) << 30, "allocated_peak_nbytes": int(a) << 29}

    runs.change = change
    return runs


RANGES = {"--a": {"from": 1, "to": 100}, "--b": {"from": 1, "to": 100}}


@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
def test_a_sampler_comes_nearer_than_chance(bowl: Runs, sampler: str) -> None:
    """60 of 10,000 combinations. Chance's best of 60 is at a distance of 7 in the mean, and seldom below 4."""
    limited = searching(RANGES, sampler=sampler, trials=60) | {"run": RUN | {"max_memory": "60GiB"}}
    swept = sweep(limited)
    assert len(swept.trials) == 60
    assert len({one.trial.name for one in swept.trials}) == 60, "no trial twice"
    late = [one for one in swept.trials[-15:] if not one.unfit]
    early = [one for one in swept.trials[:15] if not one.unfit]
    assert min(one.job.step_s for one in late if one.job) <= min(one.job.step_s for one in early if one.job)
    assert sum(not one.unfit for one in swept.trials[-15:]) > 9, "what breaks the limit is avoided"


def test_several_objectives_have_a_front(bowl: Runs) -> None:
    """Below 40, memory and time are against each other."""
    swept = sweep(searching(RANGES, ("time", "memory"), sampler="nsga2", trials=40))
    sizes = [one.result.figures["memory"] for one in swept.front]
    assert len(sizes) > 1
    assert sizes == sorted(sizes, reverse=True), "by time"


def test_the_choice_follows_from_seed_and_results(bowl: Runs) -> None:
    def names(seed: int, folder: str, jobs: int = 1) -> list[str]:
        swept = sweep(searching(RANGES, seed=seed, trials=14), folder=folder, jobs=jobs)
        return [one.trial.name for one in swept.trials]

    first = names(0, "a")
    assert names(0, "b", jobs=3) == first, "whatever runs at the same time"
    assert names(1, "c") != first
    asked = len(bowl.asked)
    assert names(0, "a") == first
    assert len(bowl.asked) == asked, "nothing is run again"


def test_a_small_search_ends_when_all_is_tried(bowl: Runs) -> None:
    study = searching({"--a": [1, 2, 4], "--b": [1, 2]}, trials=50) | {"only": ["a * b != 4"]}
    swept = sweep(study)
    assert sorted(one.trial.name for one in swept.trials) == ["a=1 b=1", "a=1 b=2", "a=2 b=1", "a=4 b=2"]


def test_lists_texts_and_numbers(runs: Runs) -> None:
    pytest.importorskip("optuna")
    ranges = {
        "nccl": ["", "NCCL_ALGO=Ring"],
        "--fused": [True, False],
        "--lr": {"from": 1e-4, "to": 0.1, "log": True},
        "--n": {"from": 2, "to": 8, "step": 3},
    }
    swept = sweep(searching(ranges, sampler="random", trials=12))
    chosen = [one.trial.chosen for one in swept.trials]
    assert {one["--n"] for one in chosen} <= {2, 5, 8}
    assert {one["nccl"] for one in chosen} == {"", "NCCL_ALGO=Ring"}
    assert all(1e-4 <= float(str(one["--lr"])) <= 0.1 for one in chosen)


def test_failures_and_memory_are_told(bowl: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    from phantora_async.study import search

    told: list[float] = []
    tell = search.Sampler.tell

    def kept(self: Any, asked: Any, one: Any) -> None:
        told.append(one.excess)
        tell(self, asked, one)

    monkeypatch.setattr(search.Sampler, "tell", kept)
    limited = searching({"--a": [30, 90], "--b": [1]}, trials=2, at_a_time=1) | {"run": RUN | {"max_memory": "60GiB"}}
    sweep(limited)
    assert sorted(told)[:1] + sorted(told)[-1:] == [0.0, pytest.approx(0.5)], "90 of 60 GiB"


@pytest.mark.parametrize(
    ("search", "fault"),
    [
        ({"ranges": {}}, "search.ranges: nothing to choose from"),
        ({"ranges": {"--a": 3}}, "search.ranges.--a: expected a list, or"),
        ({"ranges": {"--a": {"from": 3, "to": 1}}}, "`to` being the larger one"),
        ({"ranges": {"--a": {"from": 0, "to": 9, "log": True}}}, "`from` above 0"),
        ({"ranges": {"--a": {"from": 1, "to": 9, "step": 20}}}, "fits between"),
        ({"ranges": {"--a": {"from": "1", "to": 9}}}, "expected numbers `from`"),
        ({"ranges": {"--a": {"from": 1, "to": 9, "by": 2}}}, "found by = 2"),
        ({"ranges": {"gpus": ["h100"]}}, "search.ranges.gpus: unknown key"),
        ({"ranges": {"world_size": [2, "three"]}}, "search.ranges.world_size: expected a whole number"),
        ({"ranges": {"--a": [1]}, "sampler": "grid"}, "is not one of tpe, nsga2, random"),
        ({"ranges": {"--a": [1]}, "trials": 0}, "search.trials: expected a whole number from 1"),
        ({"ranges": {"--a": [1]}, "pruner": 1}, "search.pruner: unknown key"),
    ],
)
def test_searches_that_are_wrong(runs: Runs, search: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        read({"run": RUN, "search": search})


def test_what_can_not_come_out_is_told_before(runs: Runs) -> None:
    with pytest.raises(UsageError, match="no combination for which `only` holds"):
        read(searching({"--a": [1, 2]}) | {"only": ["a > 2"]})
    with pytest.raises(UsageError, match="exclude each other"):
        read(searching({"--a": [1, 2]}) | {"grid": {"--b": [1]}})
    with pytest.raises(UsageError, match=r"trial gpu=h300"):
        sweep(searching({"gpu": ["h100", "h300"]}))
    with pytest.raises(UsageError, match="objectives: energy is not known of a100-80g"):
        sweep(searching({"gpu": ["h100", "a100-80g"]}, ("time", "energy")))
    assert runs.asked == []
    assert not Path("phantora-sweep").exists()
