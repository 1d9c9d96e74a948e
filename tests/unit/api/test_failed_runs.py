"""The message of a run that failed: why it failed, and what is known of its steps until then."""

from __future__ import annotations

from typing import Any

from phantora_async.api.execution import _with_verdict
from phantora_async.errors import Deadlock, Interrupted, RankDied, RunFailure

from ..report.test_report import document, train
from ..virtual_time.scripted import scripts


def details_of(failure: RunFailure, report: dict[str, Any]) -> list[str]:
    failure.details = "rank 0: waits"
    return _with_verdict(failure, report).splitlines()


def test_the_verdict_follows_the_cause() -> None:
    report = document(*[train(script, 6, marked=True) for script in scripts(2)])
    memory, step, bound, rank = details_of(RankDied(1, "rank 1 ended", 1), report)
    assert memory.startswith("until then: memory: ")
    assert step.startswith("a step takes 1.6 \u00b5s (median of steps 4 to 6)")
    assert bound.startswith("bound by GPU computation")
    assert rank == "rank 0: waits"


def test_what_ranks_were_doing_stays_beside_what_it_explains() -> None:
    report = document(*[train(script, 6, marked=True) for script in scripts(2)])
    assert details_of(Deadlock("no rank can go on"), report)[0] == "rank 0: waits"


def test_missing_memory_comes_before_the_steps() -> None:
    report = document(*[train(script, 6, marked=True) for script in scripts(2)])
    missing = {"fits": False, "rank": 1, "needed_nbytes": 85 << 30, "missing_nbytes": 5 << 30, "asked_nbytes": 8 << 30}
    report["simulated"]["memory"] |= {
        "max_allocated_nbytes": 77 << 30,
        "total_nbytes": 80 << 30,
        "verdict": missing,
        "fullest": {"rank": 1, "parts": {"activations": 77 << 30}, "holders": []},
    }
    memory, step, bound, parts, _ = details_of(RankDied(1, "rank 1 ended", 1), report)
    assert memory.startswith("memory: does not fit: rank 1 asked for 8.00 GiB")
    assert step.startswith("until then: a step takes")
    assert bound.startswith("bound by")
    assert parts == "  rank 1 at its peak: activations 77.00 GiB"


def test_nothing_is_said_twice_or_of_steps_that_there_were_not() -> None:
    report = document(*[train(script, 6, marked=True) for script in scripts(2)])
    assert details_of(Interrupted("interrupted"), report) == ["rank 0: waits"]
    report["simulated"]["step"]["source"] = "the whole run: no markers"
    assert details_of(RankDied(1, "rank 1 ended", 1), report) == ["rank 0: waits"]
