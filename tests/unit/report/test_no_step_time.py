"""The time that a failed run took until it failed is no step's time."""

from __future__ import annotations

from typing import Any

from phantora_async.report.jobs import TRAINED_ALONE, jobs_note, trained_alone
from phantora_async.report.steps import WHOLE_RUN, has_step_time


def report(exit_code: int, source: str) -> dict[str, Any]:
    return {"exit_code": exit_code, "simulated": {"step": {"source": source, "median_ns": 5}}}


def test_a_run_that_failed_before_it_had_steps_has_no_step_time() -> None:
    assert not has_step_time(report(1, f"{WHOLE_RUN}: no steps were found"))
    assert has_step_time(report(1, "optimizer markers on rank 0"))
    assert has_step_time(report(0, f"{WHOLE_RUN}: no steps were found"))


def test_ranks_without_a_process_group_are_as_many_jobs() -> None:
    assert jobs_note({"world_size": 4, "independent": True}).startswith(
        "4 independent jobs: no rank was in a process group"
    )


def test_ranks_of_a_group_that_send_nothing_train_alone() -> None:
    step = {"source": "optimizer markers on rank 0"}
    run = {"world_size": 4, "collectives": 0, "links": {"kinds": []}, "step": step}
    assert trained_alone(run)
    assert jobs_note(run) == TRAINED_ALONE
    assert jobs_note({**run, "collectives": 1}) == ""
    assert not trained_alone({**run, "world_size": 1})
    assert not trained_alone({**run, "collectives": 1})
    assert not trained_alone({**run, "links": {"kinds": [{"kind": "nvlink"}]}})  # peers' memory, without collectives
    assert not trained_alone({name: value for name, value in run.items() if name != "links"})  # not known
    assert not trained_alone({**run, "step": {"source": f"{WHOLE_RUN}: no steps were found"}})  # each serves on its own
