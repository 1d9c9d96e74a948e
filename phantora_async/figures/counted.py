"""Says by how many steps the launches of a report are to be divided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Simulated = Mapping[str, Any]


def counted_in(simulated: Simulated, rank: int | None = None) -> int:
    """The number of steps of all GPUs, or of one rank's, in which the report counts launches: what to divide by. In the
    window of the whole run it is the number of GPUs.
    """
    ranks = ranks_of(simulated, rank)
    return steps_that_count(simulated, ranks) if simulated["kernels"]["window"] == "steps" else max(len(ranks), 1)


def steps_that_count(simulated: Simulated, ranks: Sequence[Mapping[str, Any]]) -> int:
    """The number of steps that count, of these ranks' GPUs together; at least 1."""
    own = [one.get("counted_steps") for one in ranks]
    counted = simulated["step"]["counted"]
    return max(sum(int(counted) if one is None else int(one[1] - one[0] + 1) for one in own), 1)


def ranks_of(simulated: Simulated, rank: int | None) -> Sequence[Mapping[str, Any]]:
    """The entries of all ranks, or of one."""
    return [one for one in simulated["ranks"] if rank is None or one["rank"] == rank]
