"""How long a training step takes: from markers, else from the rhythm of collectives, else from the whole run."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import Any

from phantora_async.virtual_time import Timeline
from phantora_async.virtual_time.step_log import WARM_UP

LISTED = 1000
"""Steps that the document lists one by one; of longer runs the last ones."""


def step_document(timeline: Timeline) -> dict[str, Any]:
    """``source`` says where steps were found. Steps before ``warm_up`` are listed but not counted."""
    instants = timeline.steps.instants
    if len(instants) > 1:
        device = _intervals([device_ns for device_ns, _ in instants])
        host = _intervals([host_ns for _, host_ns in instants])
        return _figures("optimizer markers on rank 0", device, host)
    collective_log = timeline.collective_log.step_instants()
    if len(collective_log) > 1:
        return _figures("rhythm of rank 0's collectives", _intervals(collective_log), [])
    return _figures("the whole run: neither optimizer steps nor a rhythm were found", [timeline.now_ns], [])


def _intervals(instants: list[int]) -> list[int]:
    return [after - before for before, after in pairwise(instants)]


def _figures(source: str, device: list[int], host: list[int]) -> dict[str, Any]:
    warm_up = min(WARM_UP, len(device) - 1)
    counted = device[warm_up:]
    return {
        "source": source,
        "warm_up": warm_up,
        "counted": len(counted),
        "median_ns": round(median(counted)),
        "mean_ns": round(sum(counted) / len(counted)),
        "min_ns": min(counted),
        "max_ns": max(counted),
        "host_median_ns": round(median(host[warm_up:])) if host else None,
        "each_ns": device[-LISTED:],
    }
