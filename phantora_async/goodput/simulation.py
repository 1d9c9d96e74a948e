"""Simulates goodput: failures of each cause are drawn, and the job is followed from phase to phase."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from math import sqrt
from statistics import stdev

from phantora_async.goodput.closed_form import Costs, cycle_s
from phantora_async.goodput.rates import Rates

WITHIN = 3.0
"""The number of standard errors by which the closed form may differ."""
MOST_TURNS = 2_000_000
"""The failures and checkpoints that a simulation follows: some three seconds of one core."""


@dataclass(frozen=True, slots=True)
class Run:
    """One simulated horizon."""

    useful_s: float
    """The work in seconds that is in durable checkpoints, or under way, at the end of the horizon; a lower bound."""
    cycles: int
    """The completed cycles, including the one that reaches over the horizon's end."""
    cycles_s: float
    """The seconds that these cycles took."""
    failures: Counter[str]


@dataclass(frozen=True, slots=True)
class Simulated:
    useful: float
    """The useful share in the long run: the work of all completed cycles, divided by their time. Its mean is that of
    the closed form (Wald: a cycle is followed to its end).
    """
    error: float
    """The standard error of ``useful``."""
    low: float
    high: float
    """Nine horizons in ten have a useful share between ``low`` and ``high``."""
    failures: dict[str, float]
    """The mean number of failures in one horizon, by cause."""

    def agrees(self, useful: float) -> bool:
        return abs(useful - self.useful) <= WITHIN * self.error


class _Failures:
    """Draws the next failure, which does not depend on the job. The failures of all causes together are a Poisson
    process, too.
    """

    def __init__(self, rates: Rates, chance: random.Random) -> None:
        self._chance = chance
        self._total = rates.total
        self._causes, self._weights = list(rates.per_s), list(rates.per_s.values())
        self.next_s = chance.expovariate(self._total)
        self.counts: Counter[str] = Counter()

    def take(self) -> None:
        self.counts[self._chance.choices(self._causes, self._weights)[0]] += 1
        self.next_s += self._chance.expovariate(self._total)


def run_once(interval_s: float, costs: Costs, rates: Rates, horizon_s: float, chance: random.Random) -> Run:
    failures = _Failures(rates, chance)
    now_s = began_s = 0.0
    cycles, useful_s, counted = 0, 0.0, None
    needed_s = interval_s + costs.stall_s  # to the next durable checkpoint
    while counted is None or began_s < horizon_s:
        at_s = failures.next_s
        if counted is None and min(at_s, now_s + needed_s) >= horizon_s:
            under_way_s = interval_s + costs.stall_s - (now_s + needed_s - horizon_s)
            useful_s = cycles * interval_s + min(max(under_way_s, 0.0), interval_s)
            counted = Counter(failures.counts)
            if began_s >= horizon_s:
                break
        if at_s < now_s + needed_s:
            failures.take()
            now_s, needed_s = at_s, costs.restart_s + interval_s + costs.stall_s + costs.behind_s
            continue
        now_s += needed_s
        cycles, began_s = cycles + 1, now_s
        needed_s = interval_s + costs.stall_s
    assert counted is not None, "the loop ends behind the horizon"
    return Run(useful_s, cycles, began_s, counted)


def turns(interval_s: float, costs: Costs, rates: Rates, horizon_s: float, runs: int) -> float:
    """The mean number of failures and checkpoints in so many horizons, each of which is followed to the end of its last
    cycle. It grows exponentially where an interval is longer than the time between failures.
    """
    cycle = cycle_s(interval_s, costs, rates.mean_s)
    return runs * ((horizon_s + cycle) / rates.mean_s + horizon_s / cycle + 1)


def simulate(interval_s: float, costs: Costs, rates: Rates, horizon_s: float, runs: int, seed: int) -> Simulated:
    """Simulates so many horizons. Equal seeds give equal figures."""
    chance = random.Random(seed)
    done = [run_once(interval_s, costs, rates, horizon_s, chance) for _ in range(runs)]
    cycles, total_s = sum(run.cycles for run in done), sum(run.cycles_s for run in done)
    useful = interval_s * cycles / total_s
    # The standard error of a ratio of means: each run contributes linearised residuals of numerator and denominator.
    residuals = [interval_s * run.cycles - useful * run.cycles_s for run in done]
    error = stdev(residuals) * sqrt(runs) / total_s if runs > 1 else 1.0
    kept = sorted(run.useful_s / horizon_s for run in done)
    counted: Counter[str] = Counter()
    for run in done:
        counted.update(run.failures)
    mean = {cause: counted[cause] / runs for cause in rates.per_s}
    return Simulated(useful, error, kept[int(0.05 * runs)], kept[min(int(0.95 * runs), runs - 1)], mean)
