"""Says whether the ranks of a run are one job: ranks that exchange nothing train as many models as there are ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phantora_async.figures import has_steps

TRAINED_ALONE = (
    "the ranks are in a process group, but no collective ran on their GPUs and nothing went between these: each "
    "rank trains a model of its own (is DistributedDataParallel or fully_shard missing?), unless gradients go through "
    "the CPU"
)


def jobs_note(simulated: Mapping[str, Any]) -> str:
    """The sentence that says that ranks are jobs of their own; empty if they are one job, or did no step."""
    if simulated.get("independent"):
        return (
            f"{simulated['world_size']} independent jobs: no rank was in a process group (init_process_group), so none "
            "waits for another or shares its gradients; figures are of each alone"
        )
    return TRAINED_ALONE if trained_alone(simulated) else ""


def trained_alone(simulated: Mapping[str, Any]) -> bool:
    """Returns true if ranks of one process group did optimizer steps, and no GPU sent anything to another."""
    links = simulated.get("links")
    if simulated["world_size"] == 1 or simulated["collectives"] or links is None or links["kinds"]:
        return False  # a report without links does not tell what went between GPUs
    return has_steps(simulated["step"])
