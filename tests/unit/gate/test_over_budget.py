"""A run that broke its budget, or that shows nothing of it, has failed."""

from __future__ import annotations

from typing import Any, cast

import pytest

from phantora_async.api.execution import Executed
from phantora_async.budget import Limits
from phantora_async.config.config import Config
from phantora_async.errors import ExitCode, OverBudget

from .test_budget import ended_early, report


class Given:
    """A stand-in for a run's configuration."""

    def __init__(self, **limits: str) -> None:
        self.budget = Limits.of(limits)
        self.report = "/runs/one/report.json"
        self.run_dir = "/runs/one"


def executed(content: dict[str, Any], **limits: str) -> Executed:
    return Executed(cast(Config, Given(**limits)), content, None, "", "", "")


def test_a_run_within_its_budget_has_not_failed() -> None:
    assert executed(report(), max_memory="76GiB", min_mfu="44%").failure is None


def test_a_broken_budget_has_an_exit_code_of_its_own() -> None:
    failure = executed(report(), max_memory="38GiB", max_step_time="1s").failure
    assert isinstance(failure, OverBudget)
    assert failure.exit_code is ExitCode.OVER_BUDGET
    assert "memory reserved 76.00 GiB of 38.00 GiB (+100.0 %)" in str(failure)
    assert "step" not in str(failure)


@pytest.mark.parametrize("unused", [[1], [0, 1]])
def test_without_a_gpu_no_budget_is_kept(unused: list[int]) -> None:
    content = report()
    content["simulated"]["gpu_use"] = {"unused_ranks": unused}
    failure = executed(content, max_memory="76GiB").failure
    assert str(failure) == ("None" if len(unused) == 1 else "over budget: no emulated GPU was used")


def test_small_limits_are_shown_in_units_that_show_them() -> None:
    failure = executed(report(reserved=32 << 20), max_memory="1MiB").failure
    assert "32.00 MiB of 1.00 MiB" in str(failure)


def test_a_run_that_ended_early_says_so() -> None:
    failure = executed(ended_early(), max_memory="38GiB", max_step_time="1ms").failure
    assert isinstance(failure, OverBudget)
    assert failure.text.startswith(
        "over budget: memory reserved at least 76.00 GiB of 38.00 GiB (+100.0 %) in step 2, after which the run ended"
    )
