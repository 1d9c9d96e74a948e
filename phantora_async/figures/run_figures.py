"""The figures that tell of a whole run: one table that texts, CSV, Markdown, comparisons, budgets and the API read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from statistics import fmean
from typing import Any

from phantora_async.wording import gib, seconds

Simulated = Mapping[str, Any]
"""The part ``simulated`` of a JSON report."""
WHOLE_RUN = "the whole run"
"""The beginning of the source of a step when no steps were found: the "step" is the whole run then."""
STEPS = "the steps that count"


class Unit(Enum):
    """The unit of a figure's value, and how a table and a text show it."""

    SECONDS = ("ms", 1e-3)
    BYTES = ("GiB", 2**30)
    SHARE = ("%", 0.01)
    """The share of a whole that is 1."""
    RATE = ("", 1.0)
    """The number per second of what the title counts."""

    def __init__(self, shown: str, scale: float) -> None:
        self.shown = shown
        """The unit in tables; empty where the title says it."""
        self.scale = scale
        """The value that one of the shown unit stands for."""

    def text(self, value: float) -> str:
        """The value as a sentence or a cell shows it."""
        match self:
            case Unit.SECONDS:
                return seconds(round(value * 1e9))
            case Unit.BYTES:
                return gib(value) if value >= 2**30 else f"{value / 2**20:.2f} MiB"
            case Unit.SHARE:
                return f"{value:.1%}"
            case Unit.RATE:
                return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


@dataclass(frozen=True, slots=True)
class RunFigure:
    """One number of a run."""

    name: str
    """Its name in the API and in CSV."""
    title: str
    unit: Unit
    window: str
    """The part of the run to which the figure belongs."""
    value: Callable[[Simulated], float | None]
    """Reads it from a report; None: the report does not know it."""

    def text(self, value: float) -> str:
        """The value with its unit."""
        return self.unit.text(value)


def has_steps(step: Mapping[str, Any]) -> bool:
    """Returns true if steps were found. `step`: the part ``step`` of a report. Otherwise the "step" is the whole
    run.
    """
    return not str(step["source"]).startswith(WHOLE_RUN)


def _end_of_interval(end: str) -> Callable[[Simulated], float | None]:
    def read(simulated: Simulated) -> float | None:
        found = simulated["step"].get("interval")
        return None if found is None else float(found[end]) / 1e9

    return read


def _peak(which: str) -> Callable[[Simulated], float | None]:
    def read(simulated: Simulated) -> float | None:
        return float(max(one["memory"][which] for one in simulated["ranks"]))

    return read


def _host_work(simulated: Simulated) -> float | None:
    """Seconds of a host's own work in a step: the mean over ranks."""
    ranks = [one for one in simulated["ranks"] if one.get("window_ns") and "host_work_ns" in one]
    if not ranks:
        return None
    step_s = float(simulated["step"]["median_ns"]) / 1e9
    return fmean(one["host_work_ns"] / one["window_ns"] for one in ranks) * step_s


def logged_rate(rate: str, name: str = "") -> RunFigure:
    """A figure that reads the last value that the script itself logged as `rate`, such as ``tokens/s``."""

    def read(simulated: Simulated) -> float | None:
        return next((one.get("value") for one in simulated.get("logged", []) if one.get("rate") == rate), None)

    return RunFigure(name or rate, f"{rate}, logged by the script", Unit.RATE, "the script's last log", read)


STEP_TIME = RunFigure(
    "step_time", "step time", Unit.SECONDS, STEPS, lambda simulated: float(simulated["step"]["median_ns"]) / 1e9
)
INTERVAL_LOW = RunFigure("interval_low", "90% range, low end", Unit.SECONDS, STEPS, _end_of_interval("low_ns"))
INTERVAL_HIGH = RunFigure("interval_high", "90% range, high end", Unit.SECONDS, STEPS, _end_of_interval("high_ns"))
HOST_WORK = RunFigure("host_work", "host's work in a step", Unit.SECONDS, STEPS, _host_work)
MFU = RunFigure("mfu", "MFU", Unit.SHARE, STEPS, lambda simulated: float(simulated["work"]["mfu"]))
TFLOPS = RunFigure(
    "tflops_per_gpu",
    "TFLOP/s per GPU",
    Unit.RATE,
    STEPS,
    lambda simulated: float(simulated["work"]["tflops_per_gpu"]),
)
TOKENS = logged_rate("tokens/s", "tokens_per_second")
ALLOCATED = RunFigure("peak_memory", "memory allocated", Unit.BYTES, WHOLE_RUN, _peak("allocated_peak_nbytes"))
RESERVED = RunFigure("peak_reserved", "memory reserved", Unit.BYTES, WHOLE_RUN, _peak("reserved_peak_nbytes"))
RUN_FIGURES = (STEP_TIME, INTERVAL_LOW, INTERVAL_HIGH, HOST_WORK, TOKENS, TFLOPS, MFU, ALLOCATED, RESERVED)
"""The figures in the order in which they are shown."""
