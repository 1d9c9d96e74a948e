"""Reads a job's speed from a report: money and energy are computed from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from phantora_async.figures import has_steps, tokens_of_step


@dataclass(frozen=True, slots=True)
class Job:
    gpu: str
    """The GPU's name, as its description has it."""
    gpus: int
    step_s: float
    step_j: float | None
    """The joules of a step of all GPUs; None: not known."""
    tokens_per_step: float | None
    """The tokens of a step of all GPUs."""
    tokens_from: str = ""
    """Names the source of the number of tokens."""


def job_of(report: Mapping[str, Any], tokens_per_step: float | None = None) -> Job | None:
    """The job of the report; None if it has no steps. `tokens_per_step`: in place of those counted or logged."""
    simulated = report["simulated"]
    step, gpus = simulated["step"], int(simulated["world_size"])
    unused = simulated.get("gpu_use", {}).get("unused_ranks", ())
    if not has_steps(step) or len(unused) == gpus:
        return None
    step_s, tokens_from = step["median_ns"] / 1e9, "as given"
    if tokens_per_step is None:
        tokens = tokens_of_step(simulated)
        tokens_per_step, tokens_from = (tokens.of_step, tokens.source) if tokens is not None else (None, "")
    energy = simulated.get("energy")
    return Job(simulated["gpu"], gpus, step_s, energy and energy["step_j"], tokens_per_step, tokens_from)
