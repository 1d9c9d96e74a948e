"""A trace of a rank becomes measured times, and figures that say how good they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from profiles import Gpu, Measured, times_of
from profiles.signature import parse
from profiles.timings.clock import Clocked, follow
from profiles.timings.keys import key_of
from profiles.timings.trace import TracedWork, load, works

STAND_IN = "phantora.stand_in"
"""The name of the range of work that takes the place of a collective: emu/real_run/collectives.py."""
CLOSE = 0.05
"""An execution repeats if it is so close to the time that is written for its signature."""
FEWEST_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class Times:
    measured: list[Measured]
    kernels: int
    """The number of pieces of work in the trace: kernels, copies, calls of libraries."""
    gpu_us: float
    """The time of this work in µs, over all traced steps."""
    repeated: float
    """The share of that time in executions that are close to the time written for their signature."""
    not_covered: float
    """The share of that time without a time in the table: work beside that of other streams, or without a signature."""
    modelled_clock: float
    """The share of the full clock by the model, mean over the traced work. The times are converted to the full clock by
    it, because simulated runs follow the same model: docs/costs.md.
    """
    sampled_clock: float | None
    """The share of the full clock that the GPU reported; None if it did not, or too few times."""


def times_in(gpu: Gpu, trace: Path, sampled_mhz: Sequence[int], full_mhz: int) -> Times:
    """Reads the times in a trace. Raises OSError and ValueError if it cannot be read."""
    found = works(load(trace), without=STAND_IN)
    clocked = follow(gpu, found)
    sampled = mean(sampled_mhz) / full_mhz if len(sampled_mhz) >= FEWEST_SAMPLES and full_mhz else None
    measured = times_of(gpu, found, clocked)
    repeated_us, without_us = _covered(gpu, found, clocked, measured)
    total_us = sum(work.for_us for work in found)
    by = total_us or 1.0
    return Times(
        measured, len(found), total_us, repeated_us / by, without_us / by, _mean_share(found, clocked), sampled
    )


def _mean_share(found: Sequence[TracedWork], clocked: Sequence[Clocked]) -> float:
    total_us = sum(work.for_us for work in found)
    if not total_us:
        return 1.0
    return sum(work.for_us / clock.stretch for work, clock in zip(found, clocked, strict=True)) / total_us


def _covered(
    gpu: Gpu, found: Sequence[TracedWork], clocked: Sequence[Clocked], measured: Sequence[Measured]
) -> tuple[float, float]:
    """The time of executions close to their signature's time, and the time of executions without one, in
    microseconds.
    """
    times_us = {key_of(parse(one.signature)): one.solo_ns / 1e3 for one in measured}
    by_text = {text: times_us.get(key_of(parse(text))) for text in {work.signature for work in found}}
    close_us = without_us = 0.0
    for work, clock in zip(found, clocked, strict=True):
        solo_us = by_text[work.signature]
        if solo_us is None:
            without_us += work.for_us
            continue
        took_us = work.for_us / clock.longer + gpu.achieved.launch_gap_ns * (work.kernels - 1) / 1e3
        if abs(took_us / solo_us - 1) <= CLOSE:
            close_us += work.for_us
    return close_us, without_us
