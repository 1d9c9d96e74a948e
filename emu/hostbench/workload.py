"""What a workload is, and the registry of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Workload:
    """A program of a fraction of a millisecond to a few milliseconds, with tensors so small that the GPU is faster."""

    name: str
    make: Callable[[], Run]
    """Sets it up on the current device; what it returns is run again and again."""
    tells_of_calls: bool = True
    """Its calls of CUDA are those of a training step. A loop over a few operators launches the same kernels, whose
    code and arguments are in the caches: a launch takes half of that."""


WORKLOADS: list[Workload] = []


def workload(make: Callable[[], Run]) -> Callable[[], Run]:
    """Registers a function as a workload of its name."""
    WORKLOADS.append(Workload(make.__name__, make))
    return make


def operators_alone(make: Callable[[], Run]) -> Callable[[], Run]:
    """Registers a workload that tells what the program's own work takes, not what its calls do."""
    WORKLOADS.append(Workload(make.__name__, make, tells_of_calls=False))
    return make
