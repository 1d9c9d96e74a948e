"""Collects the results that the report needs of a run: ends of steps and completed collectives."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from emu.contract.records import NcclKind
from phantora_async.figures import Shares
from phantora_async.virtual_time.events import StepDone
from phantora_async.virtual_time.facts import Collective
from phantora_async.virtual_time.states import Totals

WARM_UP = 2
"""The steps that are left out of figures if more follow: the first two intervals between markers."""
LOGGED_RANK = 0
"""The rank whose steps and collectives determine the step time."""
LOGGED_COLLECTIVES = 200_000
"""The most collectives that are logged, so that memory stays bounded."""
RECENT = 8
"""The number of each rank's last step ends that are kept."""


class StepFigures(NamedTuple):
    """The end of one step on one rank."""

    number: int
    host_ns: int
    """The instant at which the host reached the marker."""
    device_ns: int
    """The instant at which all work enqueued before the marker was done."""
    counters: Totals
    shares: Shares
    """The shares of all the rank's devices at ``device_ns``."""


class StepWindow(NamedTuple):
    """The step ends between which a rank's figures count."""

    first: StepFigures
    last: StepFigures


class StepInstants(NamedTuple):
    device_ns: int
    host_ns: int


class CompletedCollective(NamedTuple):
    signature: int
    """A number that is equal for collectives of the same kind, sizes and members."""
    at_ns: int


class Results:
    """The results of steps and collectives. Of each rank only the first and last step ends are kept."""

    __slots__ = ("_first_steps", "_last_step", "_recent", "_signatures", "completed_collectives", "step_instants")

    def __init__(self) -> None:
        self._first_steps: dict[int, list[StepFigures]] = {}
        """The first WARM_UP + 1 step ends of every rank."""
        self._last_step: dict[int, StepFigures] = {}
        self._recent: dict[int, deque[StepFigures]] = {}
        self._signatures: dict[tuple[object, ...], int] = {}
        self.step_instants: list[StepInstants] = []
        """The instants of each step's end on LOGGED_RANK."""
        self.completed_collectives: list[CompletedCollective] = []
        """The collectives of LOGGED_RANK, up to LOGGED_COLLECTIVES."""

    def add_step(self, rank: int, event: StepDone) -> None:
        """Adds a step of which all work is done."""
        figures = StepFigures(event.number, event.host_ns, event.at_ns, event.counters, event.shares)
        if rank == LOGGED_RANK:
            self.step_instants.append(StepInstants(event.at_ns, event.host_ns))
        first = self._first_steps.setdefault(rank, [])
        if len(first) <= WARM_UP:
            first.append(figures)
        self._last_step[rank] = figures
        self._recent.setdefault(rank, deque(maxlen=RECENT)).append(figures)

    def recent_steps(self, rank: int) -> list[StepFigures]:
        """The rank's last step ends, in order."""
        return list(self._recent.get(rank, ()))

    def steps_done(self, rank: int) -> int:
        """The number of the rank's steps that have ended, on its GPUs too."""
        last = self._last_step.get(rank)
        return 0 if last is None else last.number + 1

    def window(self, rank: int) -> StepWindow | None:
        """The rank's steps that count; None if it has no whole one."""
        first, last = self._first_steps.get(rank), self._last_step.get(rank)
        if not first or last is None or last.number == first[0].number:
            return None
        return StepWindow(first[min(WARM_UP, last.number - first[0].number - 1, len(first) - 1)], last)

    def add_collective(self, collective: Collective, at_ns: int) -> None:
        """Adds a collective that is complete on LOGGED_RANK."""
        if len(self.completed_collectives) >= LOGGED_COLLECTIVES:
            return
        members = collective.ranks if collective.op == NcclKind.SEND else collective.comm.id
        signature = (collective.op, collective.dtype, collective.count, collective.root, members)
        number = self._signatures.setdefault(signature, len(self._signatures))
        self.completed_collectives.append(CompletedCollective(number, at_ns))
