"""Where training steps end, as the optimizer's markers say, and what each rank's devices did in between."""

from __future__ import annotations

from typing import NamedTuple

from emu.contract import records
from phantora_async.virtual_time.entities import Shares, StepEnd

WARM_UP = 2
"""Steps that are left out of figures if more follow: the first two intervals between markers."""


class StepFigures(NamedTuple):
    """A step's end that is final."""

    number: int
    host_ns: int
    """When the host reached the marker."""
    device_ns: int
    """When all work enqueued before it was done."""
    counters: records.Counters
    shares: Shares
    """At ``device_ns``, of all the rank's devices."""


class StepWindow(NamedTuple):
    """The step ends between which a rank's figures count."""

    first: StepFigures
    last: StepFigures


class StepInstants(NamedTuple):
    device_ns: int
    host_ns: int


class StepLog:
    """Keeps what the report needs, however many steps: rank 0's instants, each rank's first and last step ends."""

    __slots__ = ("first", "instants", "last")

    def __init__(self) -> None:
        self.instants: list[StepInstants] = []
        """Of each step's end on rank 0."""
        self.first: dict[int, list[StepFigures]] = {}
        """The first WARM_UP + 1 step ends of every rank."""
        self.last: dict[int, StepFigures] = {}

    def keep(self, step: StepEnd) -> None:
        """It will not be taken back."""
        rank = step.host.rank
        figures = StepFigures(step.number, step.host_ns, step.device_ns, step.counters, step.shares)
        if rank == 0:
            self.instants.append(StepInstants(step.device_ns, step.host_ns))
        first = self.first.setdefault(rank, [])
        if len(first) <= WARM_UP:
            first.append(figures)
        self.last[rank] = figures

    def window(self, rank: int) -> StepWindow | None:
        """None if the rank has no whole step."""
        first, last = self.first.get(rank), self.last.get(rank)
        if not first or last is None or last.number == first[0].number:
            return None
        return StepWindow(first[min(WARM_UP, last.number - first[0].number - 1, len(first) - 1)], last)
