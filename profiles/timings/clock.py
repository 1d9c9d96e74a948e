"""The GPU's clock under its power limit, followed through a trace, as emu/hook/costs/power.c follows it in a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from profiles.descriptions.gpu import Gpu
from profiles.models.dispatch import estimate
from profiles.models.power import Draw, draw
from profiles.signature import parse
from profiles.timings.trace import Work

LONGEST_STRETCH = 1.6
ROUNDS = 3
"""A trace of one step is followed so often: the clock depends on the steps before."""


class Clock:
    def __init__(self, gpu: Gpu) -> None:
        """Raises ValueError for a GPU whose power is not described."""
        if gpu.power is None:
            raise ValueError(f"{gpu.name}: no [power]")
        self._window = float(gpu.power.window_ns)
        self._idle = gpu.power.idle_w / gpu.power_limit_w
        self._clocked = self._clocked_energy = 0.0
        self._energy = self._idle * self._window
        self._left, self._since = 1.0, (self._clocked, self._energy, self._clocked_energy)

    def add(self, ns: float, power: float, clocked: float) -> None:
        """Work of that duration at the full clock, or, without power and clocked, of a GPU that waits."""
        self.add_sums(ns, ns * power, ns * clocked, ns * power * clocked)

    def add_sums(self, ns: float, energy: float, clocked: float, clocked_energy: float) -> None:
        """Several pieces of work: sums of their time, and of this by their power, by clocked, by both."""
        left = self._window / (self._window + ns)
        self._clocked = (self._clocked + clocked) * left
        self._energy = (self._energy + energy) * left
        self._clocked_energy = (self._clocked_energy + clocked_energy) * left
        self._left *= left

    def repeat(self, times: float) -> None:
        """As if all that was added since the beginning had been added so often."""
        now = self._clocked, self._energy, self._clocked_energy
        left, power = self._left, self._left**times
        if left < 1:
            more = (1 - power) / (1 - left)
            self._clocked, self._energy, self._clocked_energy = (
                power * begun + more * (reached - left * begun) for begun, reached in zip(self._since, now, strict=True)
            )

    def idle(self, ns: float) -> None:
        self.add(ns, self._idle, 0.0)

    @property
    def stretch(self) -> float:
        """How much longer a large matrix product takes than at the full clock."""
        if self._energy <= self._window or not self._clocked:
            return 1.0
        half = (self._window - self._clocked - self._energy + self._clocked_energy) / 2
        found = (sqrt(half * half + self._clocked * self._clocked_energy) - half) / self._clocked
        return min(max(found, 1.0), LONGEST_STRETCH)


@dataclass(frozen=True, slots=True)
class Clocked:
    """The clock's part in one piece of work."""

    clocked: float
    """How much of its time depends on the clock: 1 for a large matrix product, 0 for what waits for memory."""
    stretch: float
    """How much longer a large matrix product takes at that moment than at the full clock."""

    @property
    def longer(self) -> float:
        """How many times longer the work takes than at the full clock."""
        return 1 + self.clocked * (self.stretch - 1)


def follow(gpu: Gpu, works: Sequence[Work]) -> list[Clocked]:
    """Of each piece of work of a trace, in order."""
    if gpu.power is None:
        return [Clocked(0.0, 1.0)] * len(works)
    clock, found = Clock(gpu), list[Clocked]()
    known: dict[str, tuple[Draw, float]] = {}
    for _ in range(ROUNDS):
        found.clear()
        free_us = works[0].at_us if works else 0.0
        for work in works:
            if work.signature not in known:
                what = parse(work.signature)
                modelled = estimate(gpu, what)
                known[work.signature] = draw(gpu, what, modelled), modelled.solo_ns
            drawn, solo_ns = known[work.signature]
            clock.idle(max(work.at_us - free_us, 0.0) * 1e3)
            clock.add(solo_ns, drawn.power, drawn.clocked)
            found.append(Clocked(drawn.clocked, clock.stretch))
            free_us = max(free_us, work.at_us + work.for_us)
    return found
