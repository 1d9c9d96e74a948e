"""Reads a job's speed from a report: money and energy are computed from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from phantora_async.figures import has_steps

_OF_ONE_GPU = re.compile(r"\btps:|per_gpu|/gpu", re.IGNORECASE)
"""Matches log lines whose rate is that of one GPU, as torchtitan's `tps` is."""


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
    """The job of the report; None if it has no steps. `tokens_per_step`: in place of what the script has logged."""
    simulated = report["simulated"]
    step, gpus = simulated["step"], int(simulated["world_size"])
    unused = simulated.get("gpu_use", {}).get("unused_ranks", ())
    if not has_steps(step) or len(unused) == gpus:
        return None
    step_s, tokens_from = step["median_ns"] / 1e9, "as given"
    if tokens_per_step is None:
        tokens_per_step, tokens_from = logged_tokens(simulated, gpus, step_s)
    energy = simulated.get("energy")
    return Job(simulated["gpu"], gpus, step_s, energy and energy["step_j"], tokens_per_step, tokens_from)


def logged_tokens(simulated: Mapping[str, Any], gpus: int, step_s: float) -> tuple[float | None, str]:
    """The tokens of a step on all GPUs, and the text of the log that says so."""
    for one in simulated.get("logged", []):
        if one.get("rate") == "tokens/s" and "value" in one:
            times = gpus if _OF_ONE_GPU.search(one["text"]) else 1
            return one["value"] * times * step_s, f"the script's log: {one['text']}"
    return None, ""
