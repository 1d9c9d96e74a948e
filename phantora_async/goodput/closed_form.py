"""Computes checkpoints and failures in closed form.

Failures come as a Poisson process of rate 1 / M, also while the job restarts. A job works for `interval`, then stands
still for `stall` while its state is copied; the checkpoint is durable when `behind` more has passed, during which the
job works on. After a failure it takes `restart` to work again, from the latest durable checkpoint.

Let a cycle be the time from one durable checkpoint to the next. Its first attempt needs interval + stall without a
failure; one after a failure needs restart + interval + stall + behind. So a cycle takes in the mean

    M exp((restart + interval + stall + behind) / M) (1 - exp(-(interval + stall) / M)).

With behind = 0 this is the model of J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart
dumps", Future Generation Computer Systems 22 (2006): M exp(R / M) (exp((interval + dump) / M) - 1). Its first-order
optimum is that of J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, inf, sqrt

TOLERANCE = 1e-12
MOST_TURNS = 200


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a checkpoint and of a restart, in seconds."""

    stall_s: float
    """The time for which the job stands still while its state is copied."""
    behind_s: float
    """The time after that until the checkpoint is durable."""
    restart_s: float
    """The time from a failure until the job works again: noticing it, starting, loading."""


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of the time in the long run. They add up to 1."""

    useful: float
    checkpoints: float
    """Standing still for the checkpoints that were completed."""
    lost_work: float
    """Work and checkpoints that a failure made useless."""
    restarts: float


def cycle_s(interval_s: float, costs: Costs, mean_s: float) -> float:
    """The mean time from one durable checkpoint to the next, in seconds. `mean_s`: the mean time between failures."""
    again_s = costs.restart_s + interval_s + costs.stall_s + costs.behind_s
    if again_s / mean_s > 700:
        return inf
    return mean_s * exp(again_s / mean_s) * -expm1(-(interval_s + costs.stall_s) / mean_s)


def shares(interval_s: float, costs: Costs, mean_s: float) -> Shares:
    total_s = cycle_s(interval_s, costs, mean_s)
    useful, checkpoints = interval_s / total_s, costs.stall_s / total_s
    # Each failure begins a restart, which ends after restart_s or with the next failure.
    restarts = -expm1(-costs.restart_s / mean_s)
    return Shares(useful, checkpoints, 1 - useful - checkpoints - restarts, restarts)


def best_interval(costs: Costs, mean_s: float) -> float:
    """The interval with the largest useful share: where (1 - interval / M) exp(interval / M) = exp(-stall / M).

    The factor exp(interval / M) of the mean cycle is one of every interval, so `behind` does not move it.
    """
    low, high = 0.0, mean_s
    target = exp(-costs.stall_s / mean_s)
    for _ in range(MOST_TURNS):
        middle = (low + high) / 2
        ratio = middle / mean_s
        if (1 - ratio) * exp(ratio) > target:
            low = middle
        else:
            high = middle
        if high - low < TOLERANCE * mean_s:
            break
    return max((low + high) / 2, costs.behind_s)


def young(costs: Costs, mean_s: float) -> float:
    return sqrt(2 * costs.stall_s * mean_s)


def daly(costs: Costs, mean_s: float) -> float:
    """Daly's higher-order estimate of the best interval, in seconds."""
    stall_s = costs.stall_s
    if stall_s >= 2 * mean_s:
        return mean_s
    ratio = sqrt(stall_s / (2 * mean_s))
    return sqrt(2 * stall_s * mean_s) * (1 + ratio / 3 + ratio * ratio / 9) - stall_s
