"""Counts what a rank's data loaders have loaded so far, and how long that took."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from ..interpreter.hook_library import Hook

MOST_SAMPLES = 4096


@dataclass(slots=True)
class Load:
    """The counts of all iterators of one loader, or of loaders that are alike."""

    dataset: str
    workers: int
    prefetch: int
    batches: int = 0
    """The number of batches that the program has taken."""
    costs: list[tuple[int, int]] = field(default_factory=list)
    """Measured costs of batches: CPU time and sleeps, in nanoseconds."""
    waits: int = 0
    waited_ns: int = 0
    """The sum of the waits for batches, in ns of virtual time."""

    def note(self, cpu_ns: int, slept_ns: int) -> None:
        if len(self.costs) < MOST_SAMPLES:
            self.costs.append((cpu_ns, slept_ns))


@dataclass(slots=True)
class Steps:
    """The steps that took the same number of batches of each loader."""

    count: int = 0
    waited_ns: int = 0


@dataclass(frozen=True, slots=True)
class OrdinarySteps:
    """The steps that take no more batches than most steps do: steps to which an evaluation adds batches are left
    out.
    """

    per_step: int = 0
    """The batches of all loaders together in a step: the median of all steps."""
    waited_ns: int = 0
    """The wait for all loaders together in a step, in ns: the mean."""
    of_each: tuple[int, ...] = ()
    """The batches that these steps took of each loader, in all."""


class Loads:
    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._loads: dict[tuple[Any, ...], Load] = {}
        self._ended = 0
        self._told: tuple[tuple[int, ...], int] = ((), 0)
        """The batches of each loader and the waits of all, at the end of the last step."""
        self._steps: dict[tuple[int, ...], Steps] = {}
        """The steps, by the batches of each loader, in the order of first use."""

    def of(self, iterator: Any) -> Load:
        """Returns the load that an iterator of torch's belongs to."""
        workers, prefetch = iterator._num_workers, getattr(iterator, "_prefetch_factor", None) or 0
        dataset = type(iterator._dataset).__name__
        return self._loads.setdefault((dataset, workers, prefetch), Load(dataset, workers, prefetch))

    def step_ends(self) -> None:
        """Counts what loaders did since the step before. What came before the second step belongs to no step, unless
        there is but one.
        """
        self._ended += 1
        if self._ended == 2:
            self._steps.clear()
        batches_before, waited_before_ns = self._told
        batches = tuple(load.batches for load in self._loads.values())
        waited_ns = sum(load.waited_ns for load in self._loads.values())
        taken = tuple(now - then for now, then in zip_longest(batches, batches_before, fillvalue=0))
        steps = self._steps.setdefault(taken, Steps())
        steps.count += 1
        steps.waited_ns += waited_ns - waited_before_ns
        self._told = batches, waited_ns

    def ordinary_steps(self) -> OrdinarySteps:
        totals = [sum(taken) for taken, steps in self._steps.items() for _ in range(steps.count)]
        if not totals:
            return OrdinarySteps()
        per_step = statistics.median_low(totals)
        found = [(taken, steps) for taken, steps in self._steps.items() if sum(taken) <= per_step]
        of_each = [0] * len(self._loads)
        for taken, steps in found:
            for number, batches in enumerate(taken):
                of_each[number] += batches * steps.count
        waited_ns = sum(steps.waited_ns for _, steps in found) // sum(steps.count for _, steps in found)
        return OrdinarySteps(per_step, waited_ns, tuple(of_each))

    def report(self) -> None:
        """Sends the counts, before BYE. The coordinator takes the last ones that it gets."""
        ordinary = self.ordinary_steps()
        of_each = ordinary.of_each or (0,) * len(self._loads)
        for number, load in enumerate(self._loads.values()):
            cpu_ns = [one for one, _ in load.costs]
            latency_ns = [one for _, one in load.costs]
            self._hook.loader(
                number,
                load.workers,
                load.prefetch,
                load.waits,
                load.batches,
                len(load.costs),
                round(statistics.median(cpu_ns)) if cpu_ns else 0,
                round(statistics.median(latency_ns)) if latency_ns else 0,
                load.waited_ns,
                of_each[number],
                ordinary.waited_ns,
                ordinary.per_step,
                load.dataset.encode(errors="replace"),
            )
