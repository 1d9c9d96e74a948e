"""Limits of figures, rules for changes, and what they say of a report."""

from __future__ import annotations

from typing import Any

import pytest

from phantora_async.budget import FIGURES, Limits, Rules, broken_text, figures_of
from phantora_async.errors import UsageError


def report(step_ns: int = 400_000_000, reserved: int = 76 << 30, mfu: float = 0.44) -> dict[str, Any]:
    """Returns the report of two ranks; rank 1 has the larger peak."""
    memory = [{"reserved_peak_nbytes": one, "allocated_peak_nbytes": one - 100} for one in (reserved // 2, reserved)]
    return {
        "simulated": {
            "gpu_use": {"used": True},
            "step": {"source": "optimizer markers on rank 0", "median_ns": step_ns},
            "work": {"mfu": mfu},
            "ranks": [{"memory": one, "steps": 5} for one in memory],
        }
    }


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("max_memory", "76GiB", 76 * 2**30),
        ("max_memory", "80 GB", 80e9),
        ("max_allocated", "1.5MiB", 1.5 * 2**20),
        ("max_step_time", "450ms", 0.45),
        ("max_step_time", "2m", 120.0),
        ("min_mfu", "40%", 0.4),
        ("min_mfu", "0.4", 0.4),
    ],
)
def test_limits_are_numbers_with_units(option: str, text: str, value: float) -> None:
    (read,) = Limits.of({option: text}).by_figure.values()
    assert read == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "76", "76 gib", "-1GiB", "0GiB", "nan", "infGiB", "1e3GiB", "７６GiB", "76GiBs"])
def test_other_texts_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"max_memory: expected a value.*76GiB"):
        Limits.of({"max_memory": text})


def test_more_than_all_of_the_gpu_s_work_is_no_limit() -> None:
    with pytest.raises(UsageError, match=r"min_mfu: expected at most 100.0%, found '140%'"):
        Limits.of({"min_mfu": "140%"})
    assert Limits.of({"min_mfu": "100%"}).by_figure == {"mfu": 1.0}


def test_a_figure_may_be_just_at_its_limit() -> None:
    limits = Limits.of({"max_memory": "76GiB", "max_step_time": "400ms", "min_mfu": "44%"})
    assert broken_text(limits.rows(report())) == ""
    over = report(step_ns=400_000_001, reserved=(76 << 30) + 1, mfu=0.4399)
    assert [row.broken for row in limits.rows(over)] == [True, True, True]


def test_the_fullest_gpu_counts_and_texts_name_figure_limit_and_distance() -> None:
    (row,) = Limits.of({"max_memory": "38GiB"}).rows(report())
    assert row.text == "memory reserved 76.00 GiB of 38.00 GiB (+100.0 %)"


def test_a_step_that_is_not_known_keeps_no_limit() -> None:
    unknown = report()
    unknown["simulated"]["step"]["source"] = "the whole run: no steps were found"
    rows = Limits.of({"max_step_time": "1s", "min_mfu": "1%"}).rows(unknown)
    assert broken_text(rows) == "step time not known; MFU not known"
    assert set(figures_of(unknown)) == {"memory", "allocated"}


@pytest.mark.parametrize(
    ("rules", "broken"),
    [
        ("step > +3%", False),  # just 3 %
        ("step > +2.9%", True),
        ("step > +13ms", False),
        ("step > +11ms", True),
        ("memory > +1%", False),
        ("mfu < -2%", True),
        ("mfu < -5%", False),
        ("step > +5%, mfu < -2%", True),
    ],
)
def test_rules_compare_with_the_baseline(rules: str, broken: bool) -> None:
    """412 ms after 400 ms are 3 % more; an MFU of 0.427 after 0.44 is 2.95 % less."""
    now, before = report(step_ns=412_000_000, mfu=0.427), report()
    assert bool(broken_text(Rules.of(rules).rows(now, figures_of(before)))) is broken


def test_a_faster_job_breaks_no_rule() -> None:
    now = report(step_ns=1_000_000, reserved=1 << 30, mfu=0.9)
    assert broken_text(Rules.of("step > +0%, memory > +0%, mfu < -0%").rows(now, figures_of(report()))) == ""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("step", "expected FIGURE"),
        ("steps > +3%", "unknown figure 'steps'; did you mean step?"),
        ("step > -3%", r"> goes with \+"),
        ("step > +3", "expected FIGURE"),
        ("step > +3GiB", "unknown unit 'GiB'; known: %, h, m, s, ms, us, ns"),
    ],
)
def test_wrong_rules_are_explained(text: str, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        Rules.of(text)


def test_all_figures_are_in_a_baseline() -> None:
    assert set(figures_of(report())) == set(FIGURES)


def ended_early(reserved: int = 76 << 30) -> dict[str, Any]:
    """Returns the report of a run that a limit of memory has ended after its second step."""
    return report(reserved=reserved) | {"stopped": {"text": "", "over_budget": {"figure": "memory", "step": 2}}}


def test_a_run_that_ended_early_is_judged_by_what_is_certain() -> None:
    limits = Limits.of({"max_memory": "38GiB", "max_allocated": "80GiB", "max_step_time": "1ms", "min_mfu": "90%"})
    (row,) = limits.rows(ended_early())
    assert row.broken
    assert row.text == "memory reserved at least 76.00 GiB of 38.00 GiB (+100.0 %)"


def test_a_run_that_ended_as_its_steps_were_too_slow() -> None:
    stopped = {"text": "", "over_budget": {"figure": "step", "step": 6, "at_least_ns": 600_000_000}}
    limits = Limits.of({"max_memory": "400GiB", "max_step_time": "400ms", "min_mfu": "90%"})
    (row,) = limits.rows(report() | {"stopped": stopped})
    assert row.text == "step time at least 600.0 ms of 400.0 ms (+50.0 %)"


def test_figures_of_a_run_that_ended_early_are_compared_with_nothing() -> None:
    whole, early = report(), ended_early()
    assert figures_of(early) == {}
    rules = Rules.of("memory > +1%, step > +3%")
    known = "; ".join(
        f"{row.figure.title} {row.figure.text(row.value)}" for row in rules.rows(whole, figures_of(whole))
    )
    assert broken_text(rules.rows(early, figures_of(whole))) == "memory reserved not known; step time not known"
    nothing = broken_text(rules.rows(whole, figures_of(early)))
    assert nothing.replace(", with nothing to compare it with", "") == known != nothing
