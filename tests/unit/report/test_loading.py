"""Does loading bind? In cases computed by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from emu.contract import records
from phantora_async.report.loading import binding_note, loading_binds, loading_document, loading_notes

from .test_report import spec

MS = 1_000_000


def loader(
    workers: int, cpu_ms: float, *, slept_ms: float = 0, batches: int = 100, waits: int = 0, per_step: int = 1
) -> Any:
    return records.Loader(
        kind=0,
        nbytes=0,
        host_ns=0,
        site=0,
        number=0,
        workers=workers,
        prefetch=2,
        waits=waits,
        batches=batches,
        measured=batches,
        cpu_ns=round(cpu_ms * MS),
        latency_ns=round(slept_ms * MS),
        waited_ns=waits * MS,
        step_batches=100 * per_step,
        step_waited_ns=waits // 100 * MS,
        per_step=per_step,
        pad=0,
        payload=b"Images",
    )


def told(one: Any, *, step_ms: float, steps: int = 100, ranks: int = 8, policy: str = "free") -> dict[str, Any]:
    step = {"median_ns": round(step_ms * MS), "each_ns": [round(step_ms * MS)], "first_counted": 1, "first_listed": 1}
    run = replace(spec(ranks), loaders=policy)
    found = loading_document(run, [{0: one}] * ranks, [steps] * ranks, step)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("one", "step_ms", "binds", "enough"),
    [
        (loader(4, 12), 10, False, 2),  # a batch every 3 ms
        (loader(4, 12), 2, True, 6),
        (loader(4, 12), 3, False, 4),
        (loader(4, 10, slept_ms=10), 4, True, 5),
        (loader(4, 12, batches=400, per_step=4), 10, True, 5),
        (loader(4, 12, batches=400), 10, False, 2),  # an evaluation took most of them
        (loader(64, 56), 2, False, 28),  # 28 of 224 CPUs are a rank's
        (loader(64, 56), 1.5, True, None),  # which load a batch every 2 ms at best
        (loader(0, 1), 10, True, 1),
        (loader(0, 0.1), 10, False, 1),
    ],
)
def test_it_binds_when_a_batch_takes_longer_than_the_step(one: Any, step_ms: float, binds: bool, enough: Any) -> None:
    found = told(one, step_ms=step_ms)
    assert (found["binds"], found["workers_enough"]) == (binds, enough)
    assert bool(binding_note(found)) == binds


def test_it_is_said_in_words() -> None:
    found = told(loader(4, 12), step_ms=2)
    assert binding_note(found) == (
        "loading binds: 4 workers a rank load a batch every 3.00 ms, the step asks for one every 2.00 ms; "
        "a step takes 3.00 ms, not 2.00 ms; 6 would do"
    )
    (note,) = loading_notes(told(loader(1, 2), step_ms=4))
    assert note.startswith(
        "data loading (Images): a batch takes 2.00 ms of CPU time on this machine (median of 800); "
        "1 worker a rank loads one every 2.00 ms, the step asks for one every 4.00 ms: 1 would do. "
        "It takes no virtual time"
    )


@pytest.mark.parametrize(("cpu_ms", "binds"), [(1, False), (11, True)])
def test_loading_in_the_main_process_binds_if_it_takes_more_than_the_rest(cpu_ms: float, binds: bool) -> None:
    found = told(loader(0, cpu_ms), step_ms=10)
    assert loading_binds(found) is binds
    start = "loading binds" if binds else "loading takes a part of each step"
    assert binding_note(found).startswith(f"{start}: the main process loads, ")


def test_where_it_takes_time_the_waits_are_told() -> None:
    assert "8 of 800 batches, 8.00 ms in all" in binding_note(told(loader(4, 12, waits=1), step_ms=3, policy="12ms"))
    assert binding_note(told(loader(4, 12), step_ms=30, policy="modelled")) == ""


@pytest.mark.parametrize(
    ("one", "step_ms", "binds"),
    [
        (loader(4, 12, waits=1), 3, False),  # the first batch is always waited for
        (loader(4, 12, waits=100), 3, True),
        (loader(4, 12, waits=100), 30, False),
        (loader(0, 1, waits=100), 3, False),  # a third of the step
        (loader(0, 2, waits=200), 3, True),
    ],
)
def test_where_it_takes_time_it_binds_if_each_step_waits(one: Any, step_ms: float, binds: bool) -> None:
    found = told(one, step_ms=step_ms, policy="12ms")
    assert loading_binds(found) is binds
    assert binding_note(found).startswith("loading binds") is (binds and one.workers > 0)


def test_the_loader_of_the_steps_counts() -> None:
    evaluation = loader(0, 5, batches=900)._replace(payload=b"Tests", step_batches=0)
    step = {"median_ns": 10 * MS, "each_ns": [10 * MS], "first_counted": 1, "first_listed": 1}
    found = loading_document(spec(1), [{0: evaluation, 1: loader(4, 12)}], [100], step)
    assert found is not None
    assert (found["dataset"], found["batches_per_step"]) == ("Images", 1)


def test_without_steps_or_loaders_nothing_is_compared() -> None:
    found = told(loader(4, 12), step_ms=3, steps=0)
    assert (found["binds"], found["asked_ns"]) == (False, None)
    assert loading_document(spec(2), [{}, {}], [1, 1], {}) is None
    assert (binding_note(None), loading_binds(None), loading_notes(None)) == ("", False, [])
