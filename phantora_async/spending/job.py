"""What a report says of a job's speed: what money and energy are counted from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WHOLE_RUN = "the whole run"
"""How the source of a step begins if no steps were found."""
_OF_ONE_GPU = re.compile(r"\btps:|per_gpu|/gpu", re.IGNORECASE)
"""In what the script has logged; torchtitan's `tps` is that of one GPU."""


@dataclass(frozen=True, slots=True)
class Job:
    gpu: str
    """By the name of its description."""
    gpus: int
    step_s: float
    step_j: float | None
    """Of all GPUs; None: not known."""
    tokens_per_step: float | None
    """Of all GPUs."""
    tokens_from: str = ""
    """Who says so."""


def job_of(report: Mapping[str, Any], tokens_per_step: float | None = None) -> Job | None:
    """`tokens_per_step`: in place of what the script has logged. None if the report has no steps."""
    simulated = report["simulated"]
    step, gpus = simulated["step"], int(simulated["world_size"])
    unused = simulated.get("gpu_use", {}).get("unused_ranks", ())
    if str(step["source"]).startswith(WHOLE_RUN) or len(unused) == gpus:
        return None
    step_s, tokens_from = step["median_ns"] / 1e9, "as given"
    if tokens_per_step is None:
        tokens_per_step, tokens_from = logged_tokens(simulated, gpus, step_s)
    energy = simulated.get("energy")
    return Job(simulated["gpu"], gpus, step_s, energy and energy["step_j"], tokens_per_step, tokens_from)


def logged_tokens(simulated: Mapping[str, Any], gpus: int, step_s: float) -> tuple[float | None, str]:
    """Of a step, on all GPUs, and the text that says so."""
    for one in simulated.get("logged", []):
        if one.get("rate") == "tokens/s" and "value" in one:
            times = gpus if _OF_ONE_GPU.search(one["text"]) else 1
            return one["value"] * times * step_s, f"the script's log: {one['text']}"
    return None, ""
