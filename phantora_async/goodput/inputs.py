"""Reads from a report the facts of the job that goodput needs: the number of GPUs, the speed, and the time of a
simulated restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from phantora_async.figures import tokens_of_step


@dataclass(frozen=True, slots=True)
class TrainingJob:
    gpus: int
    nodes: int
    step_s: float | None = None
    tokens_per_s: float | None = None
    """The speed of all GPUs together without failures, in tokens per second."""
    mfu: float | None = None
    restart_s: float | None = None
    """The mean time in seconds of the restarts that the run has simulated; None: there was none."""


def job_of(report: Mapping[str, Any]) -> TrainingJob:
    simulated = report["simulated"]
    step_ns = simulated["step"]["median_ns"]
    tokens = tokens_of_step(simulated)
    return TrainingJob(
        gpus=simulated["world_size"],
        nodes=len(simulated["servers"]),
        step_s=step_ns / 1e9,
        tokens_per_s=None if tokens is None else tokens.of_step * 1e9 / step_ns,
        mfu=simulated["work"]["mfu"],
        restart_s=_restart_s(simulated, step_ns),
    )


def _restart_s(simulated: Mapping[str, Any], step_ns: int) -> float | None:
    """The mean time of a restart: from the end of the last step before a failure to the end of the first step after it,
    less two steps: the one that failed, which counts as lost work, and the one that ends. So it includes the time until
    the failure is noticed.
    """
    step = simulated["step"]
    ends = list(accumulate(step.get("each_ns", []), initial=step.get("from_ns", 0)))
    took = []
    for restart in simulated.get("restarts", []):
        first = next((end for end in ends if end > restart["at_ns"]), None)
        if first is not None:
            last = max((end for end in ends if end <= restart["at_ns"]), default=restart["at_ns"] - step_ns)
            took.append(max(first - last - 2 * step_ns, first - restart["at_ns"] - step_ns, 0))
    return sum(took) / len(took) / 1e9 if took else None
