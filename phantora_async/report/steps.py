"""How long a training step takes: from markers, else from the period of rank 0's collectives, else the whole run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from phantora_async.virtual_time import Snapshot
from phantora_async.virtual_time.output import WARM_UP, CompletedCollective

LISTED = 1000
"""How many steps the document lists one by one; of longer runs the last ones."""


def step_document(snapshot: Snapshot) -> dict[str, Any]:
    """``source`` says how steps were found. The first ``warm_up`` steps are listed but not counted. ``from_ns`` is when
    the first step of ``each_ns`` begins.
    """
    instants = snapshot.step_instants
    if len(instants) > 1:
        device = _intervals([step.device_ns for step in instants])
        host = _intervals([step.host_ns for step in instants])
        from_ns = instants[-1 - len(device[-LISTED:])].device_ns
        return _figures("optimizer markers on rank 0", device, host) | {"from_ns": from_ns}
    repeats = _repeats(snapshot.completed_collectives)
    if len(repeats) > 1:
        each = _intervals(repeats)
        from_ns = repeats[-1 - len(each[-LISTED:])]
        return _figures("period of rank 0's collectives", each, []) | {"from_ns": from_ns}
    return _figures(
        "the whole run: neither optimizer steps nor a repeating sequence of collectives was found",
        [snapshot.now_ns],
        [],
    ) | {"from_ns": 0}


def _repeats(completed: Sequence[CompletedCollective]) -> list[int]:
    """Instants one period apart over the repeating end of the sequence; empty if there is no repetition.

    The period is the smallest number of collectives with which the last three quarters of the sequence repeat
    themselves at least three times. Its phase is arbitrary, its length is not.
    """
    tail = completed[len(completed) // 4 :]
    length = period([collective.signature for collective in tail])
    if not length or len(tail) < 3 * length:
        return []
    return [collective.at_ns for collective in tail[(len(tail) - 1) % length :: length]]


def period(numbers: Sequence[int]) -> int:
    """Smallest p with numbers[i] == numbers[i + p] throughout, by Knuth, Morris and Pratt's borders; 0 if empty."""
    borders = [0] * len(numbers)
    for place in range(1, len(numbers)):
        border = borders[place - 1]
        while border and numbers[place] != numbers[border]:
            border = borders[border - 1]
        borders[place] = border + (numbers[place] == numbers[border])
    return len(numbers) - borders[-1] if numbers else 0


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
