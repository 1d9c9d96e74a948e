"""The columns of a table of trials, the same in a terminal and in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phantora_async.budget import FIGURES
from phantora_async.spending.text import amount_text, duration_text
from phantora_async.study.outcome.front import Entry, Outcome
from phantora_async.study.trials.goal import JOB, MILLION_TOKENS, STEP
from phantora_async.study.trials.results import HIGH, LOW
from phantora_async.wording import gib

WHOLE = {STEP: "of a step", MILLION_TOKENS: "of a million tokens", JOB: "of the job"}
Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    values: Callable[[Entry], Values]
    """Reads the numbers of a trial, by their names in files; None: not known."""
    text: Callable[[Entry], str]


def columns(found: Outcome) -> Sequence[Column]:
    """The columns of all trials' figures."""
    step = FIGURES["step"].text

    def figures(entry: Entry, *names: str) -> dict[str, float | None]:
        return {name: entry.result.figures.get(name) for name in names}

    def interval(entry: Entry) -> str:
        low, high = figures(entry, LOW, HIGH).values()
        return "" if low is None or high is None else f"{step(low)} to {step(high)}"

    def rate(entry: Entry) -> float | None:
        job = entry.job
        return None if job is None or not job.tokens_per_step else job.tokens_per_step / job.step_s

    def spent(entry: Entry) -> Values:
        bill = None if entry.bill is None else entry.bill[found.of]
        money = None if bill is None else bill["money"]
        return {
            "money_low": money and money[0],
            "money_high": money and money[1],
            "kwh": bill and bill["kwh"],
        }

    def costs(entry: Entry) -> str:
        known = any(value is not None for value in spent(entry).values())
        return amount_text(entry.bill[found.of], entry.bill["price"]) if entry.bill is not None and known else ""

    def hours(entry: Entry) -> float | None:
        bill = None if entry.bill is None else entry.bill[JOB]
        return bill and bill["hours"]

    def shown(name: str, text: Callable[[float], str]) -> Callable[[Entry], str]:
        def show(entry: Entry) -> str:
            value = entry.result.figures.get(name)
            return "" if value is None else text(value)

        return show

    made = [
        Column("step", lambda one: figures(one, "step"), shown("step", step)),
        Column("90% interval", lambda one: figures(one, LOW, HIGH), interval),
        Column(
            "tokens/s",
            lambda one: {"tokens_per_second": rate(one)},
            lambda one: "" if (value := rate(one)) is None else f"{value:,.0f}",
        ),
        Column("memory reserved", lambda one: figures(one, "memory", "allocated"), shown("memory", gib)),
        Column("MFU", lambda one: figures(one, "mfu"), shown("mfu", FIGURES["mfu"].text)),
        Column(
            f"costs {WHOLE[found.of]}",
            spent,
            costs,
        ),
        Column(
            "takes",
            lambda one: {"hours": hours(one)},
            lambda one: "" if (value := hours(one)) is None else duration_text(value),
        ),
    ]
    left_out = set()
    if not found.by_tokens:
        left_out.add("tokens/s")
    if found.of != JOB:
        left_out.add("takes")
    if not any(HIGH in one.result.figures for one in found.entries):
        left_out.add("90% interval")
    return [one for one in made if one.title not in left_out]
