"""Compares a job with its real runs: what was simulated, how far that is from their range, and what may explain it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from phantora_async.figures import TIME_ACCOUNTS
from phantora_async.validation.emulation import Emulated
from phantora_async.validation.truth import JobTruth, Range

NOTABLE = 0.02
"""The largest error that needs no explanation."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A simulated value beside the range of the real ones. ``error``: see ``Range.error``."""

    simulated: float
    real_low: float
    real_high: float
    error: float

    @classmethod
    def of(cls, simulated: float | None, real: Range | None) -> Figure | None:
        if simulated is None or real is None:
            return None
        return cls(simulated, real.low, real.high, real.error(simulated))


@dataclass(frozen=True, slots=True)
class Row:
    job: str
    world: int
    runs: int
    speed_is_rate: bool
    speed: Figure | None
    max_alloc: Figure | None
    max_reserved: Figure | None
    interval_low: float | None
    """The lower end of the simulated range of the step time or rate, in the unit of ``speed``; None if the report gives
    none.
    """
    interval_high: float | None
    in_interval: bool | None
    """True if the interval meets the range of the real runs."""
    explanation: str
    wall_s: float
    failure: str


def _allocated(emulated: Emulated, truth: JobTruth) -> float | None:
    """The simulated peak nearest to the real ones, within the range that depends on timing. The script has printed its
    upper end.
    """
    if emulated.max_alloc is None or truth.max_alloc is None:
        return None
    ranks = emulated.report.get("simulated", {}).get("ranks") or [{}]
    memory = ranks[0].get("memory", {})
    most: int = memory.get("allocated_peak_nbytes", 0)
    spread: int = most - memory.get("allocated_least_nbytes", most)
    return max(emulated.max_alloc - spread, min(emulated.max_alloc, truth.max_alloc.high))


def compare(truth: JobTruth, emulated: Emulated) -> Row:
    speed = Figure.of(emulated.speed, truth.speed)
    low, high = _interval(emulated, truth)
    inside = None if low is None or high is None else low <= truth.speed.high and high >= truth.speed.low
    explained = speed is not None and abs(speed.error) > NOTABLE
    return Row(
        truth.job,
        truth.world,
        truth.runs,
        truth.speed_is_rate,
        speed,
        Figure.of(_allocated(emulated, truth), truth.max_alloc),
        Figure.of(emulated.max_reserved, truth.max_reserved),
        low,
        high,
        inside,
        explanation(emulated.report) if explained else "",
        emulated.wall_s,
        emulated.failure,
    )


def _interval(emulated: Emulated, truth: JobTruth) -> tuple[float | None, float | None]:
    """The report's relative range around its step time, applied to the figure that the script printed."""
    step = emulated.report.get("simulated", {}).get("step", {})
    found = step.get("interval")
    if not found or not step.get("median_ns") or emulated.speed is None:
        return None, None
    fast, slow = found["low_ns"] / step["median_ns"], found["high_ns"] / step["median_ns"]
    if truth.speed_is_rate:
        return emulated.speed / slow, emulated.speed / fast
    return emulated.speed * fast, emulated.speed * slow


def explanation(report: dict[str, Any]) -> str:
    """Says where the simulated GPUs' time goes, largest share first, and how well the kernels' times are known."""
    simulated = report.get("simulated", {})
    ranks: Sequence[dict[str, Any]] = simulated.get("ranks", [])
    shares: list[tuple[float, str]] = []
    window = sum(rank["window_ns"] for rank in ranks)
    if window:
        shares = [(sum(map(one.time_of, ranks)) / window, one.title) for one in TIME_ACCOUNTS]
    texts = [f"{share:.0%} {name}" for share, name in sorted(shares, reverse=True) if share >= 0.02]
    sources = simulated.get("cost_sources", {})
    if sources.get("gpu_ns") and sources["roofline"] >= NOTABLE:
        texts.append(f"{sources['roofline']:.0%} of kernel time estimated")
    return ", ".join(texts)


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures over all jobs that reported a speed."""

    jobs: int
    failed: int
    mean_error: float
    worst_error: float
    worst_job: str
    mean_alloc_error: float
    worst_alloc_error: float
    mean_reserved_error: float
    worst_reserved_error: float
    covered: int
    """The jobs, of ``with_interval``, whose simulated interval meets the range of the real runs."""
    with_interval: int


def summarise(rows: Sequence[Row]) -> Summary:
    timed = [row for row in rows if row.speed is not None]
    errors = [(abs(row.speed.error), row.job) for row in timed if row.speed is not None]
    with_interval = [row for row in timed if row.in_interval is not None]
    worst, worst_job = max(errors, default=(0.0, ""))

    def over(pick: Callable[[Row], Figure | None]) -> tuple[float, float]:
        found = [abs(figure.error) for row in timed if (figure := pick(row)) is not None]
        return _mean(found), max(found, default=0.0)

    alloc, reserved = over(lambda row: row.max_alloc), over(lambda row: row.max_reserved)
    return Summary(
        len(timed),
        len(rows) - len(timed),
        _mean([error for error, _ in errors]),
        worst,
        worst_job,
        *alloc,
        *reserved,
        sum(bool(row.in_interval) for row in with_interval),
        len(with_interval),
    )


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def document(rows: Sequence[Row]) -> dict[str, Any]:
    """The rows and the summary as JSON."""
    return {"rows": [asdict(row) for row in rows], "summary": asdict(summarise(rows))}
