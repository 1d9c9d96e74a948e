"""Computes how much wider the intervals must be to hold nine single real runs in ten of jobs that were in no fit.

Split conformal prediction: a real run's score is how far it is from what was simulated, in units of the interval's own
half on that side, before it was widened. The factor is the ceil(0.9 (n + 1))-th smallest of n scores, so that an
exchangeable new run is in the widened interval with a probability of 90 % at least. Each family of jobs has a factor:
what decides their step time (GPU, host, one or the other). Runs of one job are not independent: each job counts once,
by runs that share its weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from phantora_async.validation.kept_rows import KeptRow

LEVEL = 0.9
CLASSES = ("gpu", "both", "host")


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The calibration of one family of intervals."""

    name: str
    jobs: int
    runs: int
    factor: float
    """The factor for intervals that have only the models' own errors; infinite where there are too few jobs."""
    holds: float
    """The share of single runs that the intervals hold with the factor that the other jobs alone give. Each job counts
    once.
    """
    holds_as_they_are: float
    width: float
    """The mean width without the factor, as a share of the step."""
    needed_width: float
    """The mean width with the factor, as a share of the step."""


def scores(row: KeptRow) -> list[float]:
    """The score of each real run; infinite where the interval has no extent on that side."""
    if row.simulated is None or row.low is None or row.high is None:
        return []
    below, above = (row.simulated - row.low) / row.scale, (row.high - row.simulated) / row.scale
    found = []
    for real in row.real:
        off, half = (real - row.simulated, above) if real >= row.simulated else (row.simulated - real, below)
        found.append(off / half if half > 0 else inf if off else 0.0)
    return found


def factor_of(by_job: Sequence[Sequence[float]], level: float = LEVEL) -> float:
    """The factor that these scores give. `by_job`: the scores of each job's runs. Infinite where there are too few jobs
    for the level.
    """
    jobs = len(by_job)
    weighted = sorted((score, 1 / len(of_job)) for of_job in by_job for score in of_job)
    wanted, seen = level * (jobs + 1), 0.0
    if wanted > jobs:
        return inf
    for score, weight in weighted:
        seen += weight
        if seen >= wanted - 1e-9:
            return score
    return inf


def calibrate(rows: Iterable[KeptRow]) -> list[Calibrated]:
    """The calibrations of each family, from jobs that were in no fit, were run and have an interval."""
    usable = [row for row in rows if not row.fitted and row.holds()]
    found = []
    for name in CLASSES:
        of_class = [row for row in usable if row.bound == name]
        if not of_class:
            continue
        by_job = [scores(row) for row in of_class]
        left_out = [factor_of(by_job[:place] + by_job[place + 1 :]) for place in range(len(by_job))]
        held = [
            sum(score <= factor for score in of_job) / len(of_job)
            for of_job, factor in zip(by_job, left_out, strict=True)
        ]
        factor = factor_of(by_job)
        widths = [width for row in of_class if (width := row.width) is not None]
        found.append(
            Calibrated(
                name,
                len(of_class),
                sum(map(len, by_job)),
                factor,
                _mean(held),
                _mean([sum(row.holds()) / len(row.real) for row in of_class]),
                _mean(widths),
                _mean([width / row.scale * factor for width, row in zip(widths, of_class, strict=True)]),
            )
        )
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
