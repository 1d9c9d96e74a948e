"""A trace of a rank becomes measured times, and figures that say how good they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from profiles import Gpu, Measured, times_of
from profiles.signature import Library, parse
from profiles.timings.clock import Clocked, follow
from profiles.timings.keys import key_of
from profiles.timings.trace import Work, load, works

STAND_IN = "phantora.stand_in"
"""Range of work that takes the place of a collective: emu/real_run/collectives.py."""
CLOSE = 0.05
"""An execution repeats if it is so close to the time that is written for its signature."""
TRUSTED = 0.05
"""The modelled clock is used while it is so close to the sampled one."""
FEWEST_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class ClockShares:
    """Of the GPU's full clock, mean over the traced work."""

    modelled: float
    sampled: float | None
    """None if the GPU did not tell, or too few times."""

    @property
    def used(self) -> float | None:
        """The sampled one, where the model is too far from it."""
        if self.sampled is None or abs(self.modelled / self.sampled - 1) <= TRUSTED:
            return None
        return self.sampled


@dataclass(frozen=True, slots=True)
class Times:
    measured: list[Measured]
    kernels: int
    """Pieces of work in the trace: kernels, copies, calls of libraries."""
    gpu_us: float
    """Their time, of all traced steps."""
    repeated: float
    """Share of it in executions that are close to the time written for their signature."""
    not_covered: float
    """Share of it without a time in the table: work beside that of other streams, or without a signature."""
    clock: ClockShares


def times_in(gpu: Gpu, trace: Path, sampled_mhz: Sequence[int], full_mhz: int) -> Times:
    """Raises OSError and ValueError if the trace cannot be read."""
    found = works(load(trace), without=STAND_IN)
    clocked = follow(gpu, found)
    sampled = mean(sampled_mhz) / full_mhz if len(sampled_mhz) >= FEWEST_SAMPLES and full_mhz else None
    shares = ClockShares(_mean_share(found, clocked), sampled)
    if shares.used is not None:
        clocked = follow(gpu, found, stretch=1 / shares.used)
    measured = times_of(gpu, found, clocked)
    repeated_us, without_us = _covered(gpu, found, clocked, measured)
    total_us = sum(work.for_us for work in found)
    by = total_us or 1.0
    return Times(measured, len(found), total_us, repeated_us / by, without_us / by, shares)


def _mean_share(found: Sequence[Work], clocked: Sequence[Clocked]) -> float:
    total_us = sum(work.for_us for work in found)
    if not total_us:
        return 1.0
    return sum(work.for_us / clock.stretch for work, clock in zip(found, clocked, strict=True)) / total_us


def _covered(
    gpu: Gpu, found: Sequence[Work], clocked: Sequence[Clocked], measured: Sequence[Measured]
) -> tuple[float, float]:
    """Time of executions close to their signature's time, and time of executions without one, in microseconds."""
    times_us = {key_of(parse(one.signature)): one.solo_ns / 1e3 for one in measured}
    close_us = without_us = 0.0
    for work, clock in zip(found, clocked, strict=True):
        what = parse(work.signature)
        solo_us = None if isinstance(what, Library) else times_us.get(key_of(what))
        if solo_us is None:
            without_us += work.for_us
            continue
        took_us = work.for_us / clock.longer + gpu.achieved.launch_gap_ns * (work.kernels - 1) / 1e3
        if abs(took_us / solo_us - 1) <= CLOSE:
            close_us += work.for_us
    return close_us, without_us
