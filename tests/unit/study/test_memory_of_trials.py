"""What a sweep says of a trial's memory: why it does not fit, and that it grows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from emu.contract.records import HeldKind
from phantora_async.ingest.memory_holders import Growth, MissingMemory
from phantora_async.options import RunOptions
from phantora_async.study.sweeping import sweep
from tests.unit.report.test_memory import GIB, document, held, holder, placed, rank, with_guests

from .conftest import Runs
from .test_pruning import batch
from .test_sweep import died, grid

STUDY = grid(**{"--batch": [1, 2, 4]}) | {"more_memory": ["--batch"]}


def fragmented() -> dict[str, Any]:
    """Returns memory in which 8 GiB are asked for beside 60, of 80; 17 of the allocator's 77 are unused."""
    missing = MissingMemory(8 * GIB, 60 * GIB, 77 * GIB, 0, 1)
    return document([rank(0, 60, 77)], [held(holder(HeldKind.ACTIVATIONS, 60), missing=missing)], ended_well=False)


def growing() -> dict[str, Any]:
    """Returns memory that grows by 2 GiB a step, with 58 of 78 left: 29 steps."""
    told = held(holder(HeldKind.ACTIVATIONS, 20))
    return document([rank(0, 20, 20)], [{0: replace(told[0], growth=Growth(2 * GIB, 7, True, 1, "aten::mm"))}])


def test_fragmentation_is_named_and_rules_out_nothing_larger(runs: Runs) -> None:
    def change(options: RunOptions, simulated: dict[str, Any]) -> None:
        if batch(options) == "2":
            error = died("rank 0 ended: torch.OutOfMemoryError", {})
            error.run.report["simulated"]["memory"] = fragmented()
            raise error

    runs.change = change
    small, middle, large = sweep(STUDY).trials
    assert middle.unfit == (
        "out of memory: fragmented: 17.00 GiB of the allocator's cache are in pieces that are too small; with "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True the request would have fitted"
    )
    assert (small.unfit, large.unfit) == ("", "")
    assert [batch(options) for options in runs.asked] == ["1", "2", "4"]


def test_memory_that_grows_is_named_for_trials_that_fit_and_that_do_not(runs: Runs) -> None:
    grows = (
        "allocated memory grows by 2.00 GiB in each of the last 7 steps, asked for by aten::mm at train.py:7 in main, "
        "and fills the GPU after 29 more"
    )

    def change(options: RunOptions, simulated: dict[str, Any]) -> None:
        simulated["memory"] = growing() if batch(options) == "2" else {}
        if batch(options) == "4":
            error = died("rank 0 ended: torch.OutOfMemoryError", {})
            missing = {"fits": False, "missing_nbytes": GIB}
            error.run.report["simulated"]["memory"] = growing() | {"verdict": missing}
            raise error

    runs.change = change
    swept = sweep(STUDY)
    small, middle, large = swept.trials
    assert (small.result.reason, middle.result.reason) == ("", grows)
    assert large.unfit == f"out of memory: 1.00 GiB missing at least; {grows}"
    assert f"batch=2: {grows}" in str(swept).splitlines()


def test_a_gpu_that_other_ranks_fill_is_out_of_memory(runs: Runs) -> None:
    """Each rank has seen its own memory alone, so that the run ended well: 75 + 2 and 4 + 1 of 80."""

    def change(options: RunOptions, simulated: dict[str, Any]) -> None:
        if batch(options) == "1":
            simulated["memory"] = with_guests(75, placed(gpu0=75), placed(gpu0=4, gpu1=75))

    runs.change = change
    first, *_ = sweep(STUDY).trials
    assert first.unfit == "out of memory: 2.00 GiB missing on the GPU of rank 0, 5.00 GiB of which other ranks hold"
