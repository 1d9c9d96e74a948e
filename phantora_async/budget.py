"""The conditions that a report can be held to: limits of single figures, and rules for changes against another report.

A limit is a number with a unit: ``76GiB``, ``450ms``, ``0.4`` or ``40%``. A rule is ``step > +3%``: it is broken when
the figure has become so much larger than in the baseline; ``mfu < -2%`` when it has become smaller, ``memory >
+500MiB`` by an absolute amount.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from formats.nearest import meant_or_known
from phantora_async.errors import UsageError
from phantora_async.figures import (
    ALLOCATED,
    INTERVAL_HIGH,
    INTERVAL_LOW,
    MFU,
    RESERVED,
    STEP_TIME,
    RunFigure,
    has_steps,
)
from phantora_async.figures.run_figures import STEPS
from phantora_async.wording import UNITS_NS

Report = Mapping[str, Any]
UNITS_NBYTES = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)"


@dataclass(frozen=True, slots=True)
class Budgeted:
    """A number of a report that can be limited."""

    name: str
    """The figure's name in rules, options and budget files, such as ``step``."""
    figure: RunFigure
    units: Mapping[str, float]
    """The units in which a limit may be written, each in the figure's own unit."""
    more_is_worse: bool
    example: str
    most: float = math.inf

    @property
    def title(self) -> str:
        """Its name in tables and sentences."""
        return self.figure.title

    def value(self, simulated: Mapping[str, Any]) -> float | None:
        """The figure in a report's ``simulated``; None: the report does not know it, or nothing was done or held."""
        if self.figure.window == STEPS and not has_steps(simulated["step"]):
            return None
        return self.figure.value(simulated) or None

    def text(self, value: float) -> str:
        """The value with its unit."""
        return self.figure.text(value)

    def read(self, text: str) -> float:
        """The limit that the text states, in the unit of ``value``. Raises ValueError."""
        found = re.fullmatch(_NUMBER + r"\s*([A-Za-z%]*)", text.strip())
        if found is None or found[2] not in self.units:
            raise ValueError(f"expected a value such as {self.example}, found {text!r}")
        value = float(found[1]) * self.units[found[2]]
        if not value > 0:
            raise ValueError(f"expected a value above 0, such as {self.example}")
        if value > self.most:
            raise ValueError(f"expected at most {self.text(self.most)}, found {text!r}")
        return value


_TIMES = {unit: ns / 1e9 for unit, ns in UNITS_NS.items()}
FIGURES = {
    one.name: one
    for one in (
        Budgeted("memory", RESERVED, UNITS_NBYTES, True, "76GiB"),
        Budgeted("allocated", ALLOCATED, UNITS_NBYTES, True, "76GiB"),
        Budgeted("step", STEP_TIME, _TIMES, True, "450ms"),
        Budgeted("mfu", MFU, {"": 1.0, "%": 0.01}, False, "40%", 1.0),
    )
}
"""The figures that can be limited, by name, in the order in which they are shown. Memory is the memory of PyTorch's
allocator on the fullest GPU.
"""
OUTSIDE = "outside PyTorch"
"""The part of a GPU's memory that its allocator does not count: CUDA's own, and that of libraries."""
OPTIONS = {"max_memory": "memory", "max_allocated": "allocated", "max_step_time": "step", "min_mfu": "mfu"}
"""The name of the figure that each option of a run limits."""
OF_MEMORY = ("memory", "allocated")
"""Figures that only grow in a run."""
OF_TIME = ("step", "mfu")
"""Figures that need steps after the warm-up."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure beside the limit or the baseline that it is compared with."""

    figure: Budgeted
    value: float | None
    limit: float
    """The value that the figure is compared with; NaN: nothing is stored."""
    against: str
    """The kind of ``limit``: `budget` if it is a limit, `baseline` if it is the figure of another report."""
    broken: bool
    so_far: bool = False
    """The run ended when the limit was exceeded: its script may need more."""
    beside: str = ""
    """Says what the limit does not count, or how sure the figure is."""

    @property
    def text(self) -> str:
        """``step 433.8 ms of 450.0 ms (-3.6 %)``"""
        title, shown = self.figure.title, self.figure.text
        if self.value is None:
            return f"{title} not known"
        if math.isnan(self.limit):
            return f"{title} {shown(self.value)}, with nothing to compare it with"
        if self.against == "budget":
            least = "at least " if self.so_far else ""
            text = f"{title} {least}{shown(self.value)} of {shown(self.limit)} ({_change(self.value, self.limit)})"
            return f"{text}, {self.beside}" if self.beside else text
        return f"{title} {shown(self.value)}, baseline {shown(self.limit)} ({_change(self.value, self.limit)})"

    def document(self) -> dict[str, Any]:
        return {
            "figure": self.figure.name,
            "value": self.value,
            self.against: None if math.isnan(self.limit) else self.limit,
            "change": None if self.value is None or math.isnan(self.limit) else self.value / self.limit - 1,
            "broken": self.broken,
        }


def _change(value: float, limit: float) -> str:
    """The change as a percentage, with enough digits that a small change is never shown as none."""
    percent = 100 * (value / limit - 1)
    return f"{percent:+.1f} %" if abs(percent) >= 0.05 or percent == 0 else f"{percent:+.2g} %"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run, by the figure's name, in bytes, seconds or shares: MFU must reach its limit, others must not
    exceed it.
    """

    by_figure: Mapping[str, float]

    @classmethod
    def of(cls, texts: Mapping[str, str | None]) -> Limits:
        """Reads limits from the values of options, by the figure's name. Raises UsageError naming the one that is
        wrong.
        """
        found = {}
        for option, name in OPTIONS.items():
            text = texts.get(option)
            if text is not None:
                try:
                    found[name] = FIGURES[name].read(text)
                except ValueError as error:
                    raise UsageError(f"{option}: {error}") from None
        return cls(found)

    def rows(self, report: Report) -> list[Row]:
        """Compares the report's figures with the limits. If the run ended as soon as a limit was exceeded, only the
        exceeded limits are returned, since the other figures are not known.
        """
        if ended_over_budget(report) is not None:
            return self.exceeded(report)
        return [_with_range(row, report) for row in self.rows_of(figures_of(report))]

    def exceeded(self, report: Report) -> list[Row]:
        """The limits that a run has exceeded before it failed."""
        rows = self.rows_of(least_figures_of(report))
        return [replace(row, so_far=True) for row in rows if row.broken and row.value is not None]

    def rows_of(self, figures: Mapping[str, float]) -> list[Row]:
        """Compares `figures`, the known ones by name, with the limits."""
        return [
            _judged(figure, figures.get(name), self.by_figure[name])
            for name, figure in FIGURES.items()
            if name in self.by_figure
        ]


def _judged(figure: Budgeted, value: float | None, limit: float) -> Row:
    broken = value is None or (value > limit if figure.more_is_worse else value < limit)
    return Row(figure, value, limit, "budget", broken)


def _with_range(row: Row, report: Report) -> Row:
    """The row of a limit with how sure its figure is: a step has a 90% interval, which may reach beyond the limit, and
    memory outside PyTorch's allocator counts for no limit.
    """
    if row.value is None:
        return row
    simulated = report["simulated"]
    if row.figure.name == "step":
        low, high = INTERVAL_LOW.value(simulated), INTERVAL_HIGH.value(simulated)
        if low is not None and high is not None:
            sure = "" if (high <= row.limit or low > row.limit) else ", so that it is not sure"
            return replace(row, beside=f"90% interval {STEP_TIME.text(low)} to {STEP_TIME.text(high)}{sure}")
    outside = simulated.get("memory", {}).get("fullest", {}).get("parts", {}).get(OUTSIDE, 0)
    if row.figure.name == "memory" and outside:
        return replace(row, beside=f"{row.figure.text(row.value + outside)} with what is outside PyTorch")
    return row


# ---- changes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """``step > +3%``: how a figure must not change."""

    figure: Budgeted
    above: bool
    """True: the rule is broken when the figure is above its baseline by more than ``amount``. False: when it is below
    by more.
    """
    amount: float
    """The allowed change: a share of the baseline if ``relative``, else a number in the figure's unit."""
    relative: bool

    def broken(self, value: float, baseline: float) -> bool:
        allowed = self.amount * baseline if self.relative else self.amount
        change = value - baseline
        # Numbers that are equal in decimals may differ in the last bit: a change of just 3 % does not break "> +3%".
        slack = 1e-12 * max(abs(value), abs(baseline))
        return change > allowed + slack if self.above else change < -allowed - slack


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that one text states, separated by commas."""

    rules: tuple[Rule, ...]

    @classmethod
    def of(cls, text: str) -> Rules:
        """Reads the rules from the text. Raises UsageError."""
        return cls(tuple(_rule(part) for part in text.split(",") if part.strip()))

    @property
    def names(self) -> set[str]:
        return {one.figure.name for one in self.rules}

    def rows(self, report: Report, baseline: Mapping[str, float]) -> list[Row]:
        """Compares the report with `baseline`, figures by name. A figure that either side does not know breaks its
        rule.
        """
        simulated, known = report["simulated"], ended_over_budget(report) is None
        found = []
        for rule in self.rules:
            value = rule.figure.value(simulated) if known else None
            before = baseline.get(rule.figure.name)
            if value is None or before is None:
                found.append(Row(rule.figure, value, math.nan if before is None else before, "baseline", True))
            else:
                found.append(Row(rule.figure, value, before, "baseline", rule.broken(value, before)))
        return found


RULES = "for example: step > +3%, memory > +1%, mfu < -2%"
_RULE = re.compile(r"\s*([a-z]+)\s*([<>])\s*([+-])\s*" + _NUMBER + r"\s*([A-Za-z%]+)\s*")


def _rule(text: str) -> Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise UsageError(f"rule {text.strip()!r}: expected FIGURE > +CHANGE or FIGURE < -CHANGE", RULES)
    figure = FIGURES.get(found[1])
    if figure is None:
        raise UsageError(
            f"rule {text.strip()!r}: unknown figure {found[1]!r}; {meant_or_known(found[1], FIGURES)}", RULES
        )
    if (found[2] == ">") != (found[3] == "+"):
        raise UsageError(f"rule {text.strip()!r}: {found[2]} goes with {'+' if found[2] == '>' else '-'}", RULES)
    if found[5] == "%":
        return Rule(figure, found[2] == ">", float(found[4]) / 100, relative=True)
    if found[5] not in figure.units:
        units = ", ".join(["%", *filter(None, figure.units)])
        raise UsageError(f"rule {text.strip()!r}: unknown unit {found[5]!r}; known: {units}", RULES)
    return Rule(figure, found[2] == ">", float(found[4]) * figure.units[found[5]], relative=False)


def figures_of(report: Report) -> dict[str, float]:
    """All figures that the report knows, by name, as a baseline stores them; empty for a run that a limit has ended
    early.
    """
    if ended_over_budget(report) is not None:
        return {}
    values = {name: figure.value(report["simulated"]) for name, figure in FIGURES.items()}
    return {name: value for name, value in values.items() if value is not None}


def least_figures_of(report: Report) -> dict[str, float]:
    """The lower bounds that a run ended early by a limit gives for its figures, by name."""
    values = {name: FIGURES[name].value(report["simulated"]) for name in OF_MEMORY}
    least_ns = (report.get("stopped") or {}).get("over_budget", {}).get("at_least_ns")
    values["step"] = None if least_ns is None else least_ns / 1e9
    return {name: value for name, value in values.items() if value is not None}


def ended_over_budget(report: Report) -> int | None:
    """The number of the step in which an exceeded limit ended the run; None if no limit ended it."""
    over = (report.get("stopped") or {}).get("over_budget")
    return None if over is None else int(over["step"])


def broken_text(rows: Sequence[Row]) -> str:
    return "; ".join(row.text for row in rows if row.broken)
