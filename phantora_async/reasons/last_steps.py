"""Keeps the facts of each rank's last steps while the run goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from emu.contract import records
from phantora_async.virtual_time import OutsideWait, UnseenFact
from phantora_async.virtual_time.facts import ends_step

KEPT_STEPS = 4
"""The steps of a rank that are kept: one to warm up, the one that is explained, one after it, and one more because
ranks are not equally far.
"""
MOST_FACTS = 3_000_000
"""The most facts of all ranks together, about 1 GB. If the steps are longer, nothing is kept."""

Facts = list[Any]


@dataclass(slots=True)
class RankSteps:
    """One rank's facts from the end of a step on."""

    first: int = 0
    """The number of the marker that ends ``steps[0]``; 0: that step begins with the run."""
    steps: deque[Facts] = field(default_factory=deque)
    """The facts of each step; each ends with its marker."""
    after: Facts = field(default_factory=list)
    """The facts after the last marker."""
    fed: int = 0
    """The number of facts since the run's start."""
    streams: dict[int, Any] = field(default_factory=dict)
    """The STREAM_CREATE records of the streams that existed before ``steps[0]``, by number."""

    def since(self, marker: int) -> Facts:
        """All facts after this marker; -1: from the run's start."""
        place = marker + 1 - self.first
        return [fact for step in list(self.steps)[place:] for fact in step] + self.after

    def streams_at(self, marker: int) -> list[Any]:
        """The STREAM_CREATE records of the streams that exist at this marker."""
        streams = self.streams.copy()
        for step in list(self.steps)[: marker + 1 - self.first]:
            _follow(streams, step)
        return list(streams.values())


class LastSteps:
    """Keeps the last steps of all ranks: ``add`` facts as they are given to virtual time."""

    def __init__(self, world_size: int, steps_done: Callable[[int], int]) -> None:
        """`steps_done`: the number of a rank's steps that have ended in virtual time. Later steps are all kept."""
        self.ranks = [RankSteps() for _ in range(world_size)]
        self.missing = ""
        """The reason why facts are not kept; "": they are kept."""
        self._steps_done = steps_done
        self._kept = 0

    def add(self, rank: int, facts: Sequence[Any]) -> None:
        if self.missing:
            return
        mine = self.ranks[rank]
        mine.fed += len(facts)
        self._kept += len(facts)
        begin = 0
        for place, fact in enumerate(facts, 1):
            if ends_step(fact):
                mine.steps.append(mine.after + list(facts[begin:place]))
                mine.after = []
                begin = place
                self._forget(rank)
        mine.after.extend(facts[begin:])
        if self._kept > MOST_FACTS:
            self._give_up(f"the last {KEPT_STEPS} steps of all ranks have more than {MOST_FACTS:,} records")

    def restart(self) -> None:
        """Gives up after a restart: all processes have ended, and their ranks start again."""
        self._give_up("ranks were started again")

    def waited(self, wait: OutsideWait) -> None:
        """Adds a wait of a rank that no record shows: in a socket or for a file."""
        if not self.missing and wait.for_ns:
            mine = self.ranks[wait.rank]
            place = len(mine.after) - (mine.fed - wait.facts_done)
            mine.after.insert(max(place, 0), UnseenFact.of(wait.for_ns))

    def _forget(self, rank: int) -> None:
        mine = self.ranks[rank]
        while mine.first + KEPT_STEPS < min(self._steps_done(rank), mine.first + len(mine.steps)):
            gone = mine.steps.popleft()
            _follow(mine.streams, gone)
            mine.first += 1
            self._kept -= len(gone)

    def _give_up(self, reason: str) -> None:
        self.missing = reason
        self.ranks = []


def _follow(streams: dict[int, Any], facts: Facts) -> None:
    """Updates the streams by those that these facts create and destroy."""
    for fact in facts:
        if fact.kind == records.STREAM_CREATE:
            streams[fact.stream] = fact
        elif fact.kind == records.STREAM_DESTROY:
            streams.pop(fact.stream, None)
