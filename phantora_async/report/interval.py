"""Computes the range around a simulated step time from the errors of kernels, collectives and the host.

A step is a GPU's time (computing, and communication that nothing hides) and its waits for the host. Both ends of the
range are the longer one of two times: the GPU's with the waits that such a host leaves, and the host's own work with
what of the waits it does not explain. What is not known of them:

* kernels by their models' errors (`profiles.models.errors`), which differ from one signature to the next far more than
  from model to model, and by what GPUs of one kind differ;
* communication that nothing hides by the network model's error; communication beside computation by that of contention;
* the host by the spread of machines of its kind and the error of its model; of several ranks that work together it is
  the slowest one that counts, at every collective. The step has the slowest one's mean, for up to eight ranks.

Errors are relative standard deviations. The range would hold the real time of nine jobs in ten if they were right.
What they leave out or count twice is in CALIBRATION: how much wider the ranges must be to hold nine real runs in ten of
jobs that were in no fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import hypot, sqrt
from typing import Any

from profiles import HostModel, largest_of

Z = 1.645
"""Standard deviations on either side that hold 90 % of a normal distribution."""
NETWORK = 0.05
"""The relative error of a collective that has the GPU to itself: laboratory/notes/accuracy-network.md."""
CONTENTION = 0.15
"""The relative error of a collective beside computation, and of the computation beside it: docs/accuracy.md."""
MACHINE = 0.02
"""The relative difference between the kernels of GPUs of one kind, for all of a step together: docs/costs.md."""
REPEAT = 0.01
"""The relative difference between repeats of one GPU-bound job."""
SPREAD = 1.65
"""The root mean square of a model's errors (`profiles.models.errors`) over their mean:
laboratory/notes/kernel-models.md.
"""
TOGETHER = 0.1
"""The correlation of the errors of two signatures of one model: laboratory/notes/kernel-models.md."""
OF_THE_SLOWEST = 0.7
"""The standard deviation of the largest of several normal values: 0.83 of two, 0.61 of eight."""

CALIBRATION = {"gpu": 0.66, "both": 1.05, "host": 0.88}
"""The factor on the range, by what decides the step time: see docs/accuracy.md. `gpu` is the factor for jobs without
convolutions, since the networks of the other jobs were measured by themselves.
"""
NEAR = 0.75
"""A slow host whose work takes this share of the GPU's time may decide the step: jobs took up to 1.9 times the
described host's time, 1.3 times what a slow host is taken to need (laboratory/notes/host-model.md)."""
WORKING = 0.5
"""The share of the phases in which the GPU waits for a slow host that the host spends working, an assumption."""


@dataclass(frozen=True, slots=True)
class StepParts:
    """The parts of a step in ns: means over ranks."""

    step_ns: float
    gpu_ns: float
    """The time in which the GPU does not wait for its host."""
    host_ns: float
    """The host's work, without waits."""
    exposed_ns: float
    """Communication that no computation hides, waits for peers included."""
    hidden_ns: float
    """Communication beside computation."""


@dataclass(frozen=True, slots=True)
class Interval:
    low_ns: int
    high_ns: int
    level: float
    """The share of real times that the interval is meant to hold."""
    bound: str
    """The resource that decides the step time: `gpu`, `host`, or `both` if either may."""
    kernel_error: float
    """The relative standard deviation of the GPU's computing: from the models' errors, and from the differences between
    GPUs of one kind.
    """
    host_fast: float
    host_slow: float
    """Factors on the host's work at either end."""
    host_slowest: float
    """The host's work of the step over that of a mean rank: the slowest rank's counts."""
    host_low_ns: int
    host_high_ns: int
    """The host's work at either end, in ns."""
    scale: float
    """The factor by which the range was widened: from CALIBRATION."""

    def document(self) -> dict[str, Any]:
        return asdict(self)


def step_parts(step_ns: float, ranks: Sequence[Mapping[str, Any]]) -> StepParts | None:
    """The parts of the mean step of the report's ranks; None if they have no steps."""
    counted = [rank for rank in ranks if rank["window"] == "steps" and rank["window_ns"]]
    if not counted or not step_ns:
        return None

    def mean(*keys: str) -> float:
        shares: list[float] = [sum(rank[key] for key in keys) / rank["window_ns"] for rank in counted]
        return sum(shares) / len(shares) * step_ns

    exposed = mean("transfer_ns", "peers_ns")
    return StepParts(
        step_ns,
        step_ns - mean("host_bound_ns"),
        mean("host_work_ns"),
        exposed,
        max(mean("communication_ns") - exposed, 0.0),
    )


def interval(parts: StepParts, kernel_error: float, host: HostModel | None, ranks: int = 1) -> Interval:
    """The range. `kernel_error`: relative, of the GPU time of all kernels. `host` None: it costs nothing, and nothing
    of it is uncertain. `ranks`: their number.
    """
    computing_ns = max(parts.gpu_ns - parts.exposed_ns, 0.0)
    of_kernels = hypot(kernel_error, MACHINE)
    known = (Z * of_kernels * computing_ns, Z * NETWORK * parts.exposed_ns, Z * REPEAT * parts.step_ns)
    off_ns = hypot(*known, Z * CONTENTION * parts.hidden_ns)
    fast, slow = (1.0, 1.0) if host is None else host_factors(host, ranks)
    low_ns = max(parts.step_ns - hypot(off_ns, _changed_ns(parts, fast)), _host_bound_ns(parts) * fast)
    high_ns = max(parts.step_ns + hypot(off_ns, _changed_ns(parts, slow)), _host_bound_ns(parts) * slow)
    always, perhaps = parts.host_ns * fast > parts.gpu_ns, parts.host_ns * slow > NEAR * parts.gpu_ns
    bound = "host" if always else "both" if perhaps else "gpu"
    scale = CALIBRATION[bound]
    below_ns, above_ns = scale * max(parts.step_ns - low_ns, 0.0), scale * (high_ns - parts.step_ns)
    return Interval(
        round(max(parts.step_ns - below_ns, 0.0)),
        round(parts.step_ns + above_ns),
        0.9,
        bound,
        of_kernels,
        fast,
        slow,
        1.0 if host is None else host.slowest,
        round(parts.host_ns * fast),
        round(parts.host_ns * slow),
        scale,
    )


def _changed_ns(parts: StepParts, factor: float) -> float:
    """The change of the GPU's waits in ns if the host takes `factor` of the modelled time: by the host's work in the
    phases in which the GPU waits, until there are no waits left. These phases may be the whole step, so a faster host
    may remove more than a slower one adds.
    """
    waiting_ns = parts.step_ns - parts.gpu_ns
    if factor < 1:
        return max(-waiting_ns, (factor - 1) * parts.host_ns)
    return (factor - 1) * min(parts.host_ns, waiting_ns / (1 - WORKING))


def _host_bound_ns(parts: StepParts) -> float:
    """The step time in ns if the GPU never makes the host wait."""
    return parts.host_ns + max(0.0, parts.step_ns - max(parts.gpu_ns, parts.host_ns))


def host_factors(host: HostModel, ranks: int = 1) -> tuple[float, float]:
    """The factors of a fast and a slow machine of this kind on the step's host work. They include the model's own error
    and that of the slowest rank; at the slow end also the effect of more ranks than were measured together. A host that
    stands for one of several ranks is measured: they differ by themselves, and the step has the slowest of all.
    """
    error = Z * host.spread.error
    waiting = Z * OF_THE_SLOWEST * host.spread.ranks if ranks > 1 else 0.0
    more = largest_of(ranks) - largest_of(host.among) if host.among > 1 else 0.0
    beyond = host.spread.ranks * more / host.slowest
    fast = max(0.0, 1 - hypot(1 - host.spread.fast, error, waiting))
    return fast, 1 + hypot(host.spread.slow - 1, error, waiting) + beyond


def kernel_error(signatures: Sequence[Mapping[str, Any]], uncertainty: float = 1.0) -> float:
    """The relative standard deviation of the GPU time of all of the report's signatures. Most of a model's error is
    separate for each signature; the error of a GPU's description (`uncertainty`, a factor on all errors) is common to
    all.
    """
    by_model: dict[str, float] = {}
    alone = 0.0
    for one in signatures:
        off = SPREAD * one["share"] * one["error"]
        by_model[one["model"]] = by_model.get(one["model"], 0.0) + off
        alone += off**2
    own = (1 - TOGETHER) / max(uncertainty, 1.0) ** 2
    return sqrt(own * alone + (1 - own) * sum(off**2 for off in by_model.values()))
