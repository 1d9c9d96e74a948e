"""Follows the GPU's clock under its power limit through a trace, as emu/hook/costs/power.c follows it in a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profiles.descriptions.gpu import Gpu
from profiles.models.clock import Clock
from profiles.models.dispatch import estimate
from profiles.models.power import Draw, draw
from profiles.signature import parse
from profiles.timings.trace import TracedWork

ROUNDS = 3
"""The number of times that a trace of one step is followed: the clock depends on the steps before."""


@dataclass(frozen=True, slots=True)
class Clocked:
    """The clock's part in one piece of work."""

    clocked: float
    """The share of its time that depends on the clock: 1 for a large matrix product, 0 for work that waits for
    memory.
    """
    stretch: float
    """The time of a large matrix product at that moment, over that at the full clock."""

    @property
    def longer(self) -> float:
        """The time of the work, over that at the full clock."""
        return 1 + self.clocked * (self.stretch - 1)


def follow(gpu: Gpu, works: Sequence[TracedWork]) -> list[Clocked]:
    """The clock's part in each piece of work of a trace, in order."""
    if gpu.power is None:
        return [Clocked(0.0, 1.0)] * len(works)
    clock, found = Clock.of(gpu), list[Clocked]()
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
