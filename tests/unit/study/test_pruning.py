"""Trials that a sweep does not run to their end, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phantora_async.errors import OverBudget, UsageError
from phantora_async.options import RunOptions
from phantora_async.study.sweeping import sweep
from phantora_async.study.trials.study_file import read

from .conftest import Runs
from .test_sweep import RUN, died, grid, stored

SECONDS = {"1": 0.5, "2": 0.4, "4": 0.6}
"""Seconds of a step by the trial's batch."""


def ended(options: RunOptions, simulated: dict[str, Any], figure: str, **over: Any) -> OverBudget:
    """Returns what `run_with` raises for a run that a limit has ended in step 2."""
    from phantora_async.api.results import Run

    error = OverBudget("over budget")
    stopped = {"text": "", "over_budget": {"figure": figure, "step": 2, **over}}
    error.run = Run({"simulated": simulated, "stopped": stopped}, Path(options.run_dir or "") / "report.json")
    return error


def batch(options: RunOptions) -> str:
    return options.arguments[options.arguments.index("--batch") + 1]


def timed(options: RunOptions, simulated: dict[str, Any]) -> None:
    """Changes the report as a run with a limit would: one that is too slow ends early."""
    step_s = SECONDS[batch(options)]
    simulated["step"]["median_ns"] = round(1e9 * step_s)
    if options.max_step_time and step_s > float(options.max_step_time.removesuffix("ns")) / 1e9:
        raise ended(options, simulated, "step", at_least_ns=round(1e9 * step_s))


def large(options: RunOptions, simulated: dict[str, Any]) -> None:
    """Changes the report: 10 GiB for each of the batch, ended by a limit."""
    nbytes = int(batch(options)) * (10 << 30)
    for rank in simulated["ranks"]:
        rank["memory"] = {"reserved_peak_nbytes": nbytes, "allocated_peak_nbytes": nbytes}
    if options.max_memory and nbytes > int(options.max_memory.removesuffix("B")):
        raise ended(options, simulated, "memory")


def by_time(**more: Any) -> dict[str, Any]:
    return {"tokens_per_step": 1000, "objectives": ["time"], "prune": True, **more}


def states(swept: Any) -> list[tuple[str, str]]:
    return [(one.result.state, one.result.how) for one in swept.trials]


def test_a_run_that_exceeds_the_limit_of_memory_ends(runs: Runs) -> None:
    runs.change = large
    swept = sweep({"run": RUN | {"max_memory": "20GiB"}, "grid": {"--batch": [1, 2, 3]}})
    assert [options.max_memory for options in runs.asked] == ["21474836480B"] * 3
    assert states(swept) == [("done", "run"), ("done", "run"), ("pruned", "run")]
    assert swept.trials[2].unfit == "pruned: memory reserved at least 30.00 GiB of 20.00 GiB (+50.0 %)"


def test_a_run_that_is_recorded_for_others_goes_to_its_end(runs: Runs) -> None:
    runs.change = large
    swept = sweep({"run": RUN | {"max_memory": "20GiB"}, "grid": {"--batch": [3], "gpu": ["h100", "h200"]}})
    assert [options.max_memory for options in runs.asked] == [None]
    assert states(swept) == [("done", "replay"), ("done", "run")]
    assert swept.trials[1].unfit == "memory reserved 30.00 GiB of 20.00 GiB (+50.0 %)"


def test_what_needs_more_memory_than_what_does_not_fit_is_not_begun(runs: Runs) -> None:
    def out_of_memory(options: RunOptions, simulated: dict[str, Any]) -> None:
        if int(batch(options)) >= 2 and "--long" not in options.arguments:
            raise died("rank 0 ended: torch.OutOfMemoryError", {"fits": False, "missing_nbytes": 1 << 30})

    runs.change = out_of_memory
    study = grid(**{"--batch": [4, 2, 1], "--long": [False, True]}) | {"more_memory": ["--batch"]}
    swept = sweep(study)
    asked = [["--batch", "1"], ["--batch", "1", "--long"], ["--batch", "2"], ["--batch", "2", "--long"]]
    assert runs.arguments == [*asked, ["--batch", "4", "--long"]], "those that need less come first"
    assert states(swept)[0] == ("pruned", "not run")
    assert swept.trials[0].unfit == "pruned: batch=2 long=false does not fit, and this has more of --batch"
    sweep(study)
    assert len(runs.asked) == 5, "nothing is tried twice"


def test_a_program_that_does_not_fit_is_not_tried_on_a_gpu_that_is_no_larger(runs: Runs) -> None:
    def out_of_memory(options: RunOptions, simulated: dict[str, Any]) -> None:
        raise died("rank 0 ended: torch.OutOfMemoryError", {"fits": False, "missing_nbytes": 1 << 30})

    runs.change = out_of_memory
    swept = sweep(grid(gpu=["h100", "h200"], cluster=["dgx-h100", "p5en"]))
    assert [options.gpu for options in runs.asked] == ["h200"]
    assert states(swept).count(("out of memory", "not run")) == 3
    assert swept.trials[0].unfit.endswith("does not fit, on a GPU with at least as much memory")


def test_a_run_that_is_slower_than_the_best_one_ends(runs: Runs) -> None:
    runs.change = timed
    swept = sweep(grid(**{"--batch": [1, 2, 4]}) | by_time())
    limits = [options.max_step_time for options in runs.asked]
    assert limits == [None, "500000000.500ns", "400000000.400ns"]
    assert states(swept) == [("done", "run"), ("done", "run"), ("pruned", "run")]
    assert swept.trials[2].unfit == "pruned: step time at least 600.0 ms of 400.0 ms (+50.0 %)"
    assert swept.best("time") is swept.trials[1]


def test_what_is_beaten_depends_on_the_tokens_of_a_step(runs: Runs) -> None:
    """600 ms for four of a batch are better than 400 ms for two."""
    runs.change = timed
    swept = sweep(grid(**{"--batch": [2, 4]}) | by_time(tokens_per_step="batch"))
    assert runs.asked[1].max_step_time == "800000000.800ns"
    assert swept.best("time") is swept.trials[1]


def test_what_was_pruned_is_tried_again_when_the_limit_is_larger(runs: Runs) -> None:
    runs.change = large
    study = {"run": RUN | {"max_memory": "20GiB"}, "grid": {"--batch": [1, 3]}}
    sweep(study, folder="kept")
    study["run"] = RUN | {"max_memory": "40GiB"}
    swept = sweep(study, folder="kept")
    assert [batch(options) for options in runs.asked] == ["1", "3", "3"]
    assert states(swept) == [("done", "run"), ("done", "run")]
    assert len(stored("kept")) == 2


def test_what_was_pruned_is_tried_again_without_what_beat_it(runs: Runs) -> None:
    runs.change = timed
    sweep(grid(**{"--batch": [2, 4]}) | by_time(), folder="kept")
    swept = sweep(grid(**{"--batch": [4]}) | by_time(), folder="kept")
    assert states(swept) == [("done", "run")]
    assert [batch(options) for options in runs.asked] == ["2", "4", "4"]


def test_a_search_is_told_what_was_pruned(runs: Runs) -> None:
    pytest.importorskip("optuna")
    runs.change = timed
    search = {"trials": 3, "at_a_time": 1, "ranges": {"--batch": [1, 2, 4]}}
    study = by_time(run=RUN, search=search)
    whole = sweep(study, folder="whole")
    assert len(whole.trials) == 3
    assert whole.best("time").trial.chosen == {"--batch": 2}
    again = sweep(study, folder="whole")
    assert states(again) == states(whole)
    assert len(runs.asked) == 3, "nothing is tried twice"


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"objectives": ["time", "memory"]}, "needs tokens_per_step and a single one of these objectives: time, tok"),
        ({"tokens": "1T", "deadline": "3d"}, "prune: does not go with limits of the whole job: deadline, max_money"),
        ({"more_memory": ["--bath"]}, "more_memory: no trial chooses --bath"),
    ],
)
def test_what_cannot_be_pruned(runs: Runs, more: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        read(grid(**{"--batch": [1]}) | by_time() | more)
