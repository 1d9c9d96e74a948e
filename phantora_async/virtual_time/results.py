"""What the report is computed from: ends of training steps, and one rank's collectives, all of them final."""

from __future__ import annotations

from typing import NamedTuple

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.virtual_time.entities import Shares, StepEnd
from phantora_async.virtual_time.facts import Collective

WARM_UP = 2
"""Steps that are left out of figures if more follow: the first two intervals between markers."""
LOGGED_RANK = 0
"""Whose steps and collectives tell how long a step takes."""
LOGGED_COLLECTIVES = 200_000


class StepFigures(NamedTuple):
    """The end of one step on one rank."""

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


class CompletedCollective(NamedTuple):
    signature: int
    """Equal for collectives of the same kind, sizes and members."""
    at_ns: int


class Results:
    """Keeps what the report needs, however long the run: of each rank only the first and last step ends."""

    __slots__ = ("_first_steps", "_last_step", "_signatures", "completed_collectives", "step_instants")

    def __init__(self) -> None:
        self._first_steps: dict[int, list[StepFigures]] = {}
        """The first WARM_UP + 1 step ends of every rank."""
        self._last_step: dict[int, StepFigures] = {}
        self._signatures: dict[tuple[object, ...], int] = {}
        self.step_instants: list[StepInstants] = []
        """Of each step's end on LOGGED_RANK."""
        self.completed_collectives: list[CompletedCollective] = []
        """Of LOGGED_RANK, the first so many."""

    def add_step(self, step: StepEnd) -> None:
        rank = step.host.rank
        figures = StepFigures(step.number, step.host_ns, step.device_ns, step.counters, step.shares)
        if rank == LOGGED_RANK:
            self.step_instants.append(StepInstants(step.device_ns, step.host_ns))
        first = self._first_steps.setdefault(rank, [])
        if len(first) <= WARM_UP:
            first.append(figures)
        self._last_step[rank] = figures

    def window(self, rank: int) -> StepWindow | None:
        """The rank's steps that count; None if it has no whole one."""
        first, last = self._first_steps.get(rank), self._last_step.get(rank)
        if not first or last is None or last.number == first[0].number:
            return None
        return StepWindow(first[min(WARM_UP, last.number - first[0].number - 1, len(first) - 1)], last)

    def add_collective(self, collective: Collective, at_ns: int) -> None:
        """It was complete on LOGGED_RANK."""
        if len(self.completed_collectives) >= LOGGED_COLLECTIVES:
            return
        members = collective.ranks if collective.op == NcclKind.SEND else collective.comm.id
        signature = (collective.op, collective.dtype, collective.count, collective.root, members)
        number = self._signatures.setdefault(signature, len(self._signatures))
        self.completed_collectives.append(CompletedCollective(number, at_ns))
