"""The type of a workload, and the registry of all workloads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Workload:
    """A program of a fraction of a millisecond to a few milliseconds, with tensors so small that the GPU is faster."""

    name: str
    make: Callable[[], Run]
    """Sets the workload up on the current device; what it returns is run again and again."""
    tells_of_calls: bool = True
    """False if only the program's own work counts, not what its calls of CUDA take. These programs were taken in before
    launches of a kernel that has just run (`hot_launch`) had a price of their own.
    """


WORKLOADS: list[Workload] = []

_at_phase: list[Callable[[str], None]] = []


def phase_ends(name: str) -> None:
    """A workload calls this where a part of it has ended: each is measured by itself, and what follows the last one.

    What makes forward passes dear is not what makes backward passes dear, but a training step has as much of one as of
    the other: whole steps cannot tell the two apart.
    """
    for told in _at_phase:
        told(name)


@contextlib.contextmanager
def phases_told(told: Callable[[str], None]) -> Iterator[None]:
    """Calls `told` where phases end."""
    _at_phase.append(told)
    try:
        yield
    finally:
        _at_phase.remove(told)


def workload(make: Callable[[], Run]) -> Callable[[], Run]:
    """Registers a function as a workload of its name."""
    WORKLOADS.append(Workload(make.__name__, make))
    return make


def operators_alone(make: Callable[[], Run]) -> Callable[[], Run]:
    """Registers a workload that tells what the program's own work takes, not what its calls do."""
    WORKLOADS.append(Workload(make.__name__, make, tells_of_calls=False))
    return make
