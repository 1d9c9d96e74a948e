"""The facts of each rank's last steps, kept while the run goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from emu.contract import records
from emu.contract.records import MarkerKind
from phantora_async.virtual_time import OutsideWait, UnseenFact

KEPT_STEPS = 4
"""Steps of a rank that are kept: one to warm up, the one that is explained, one after it, and one more because ranks
are not equally far."""
MOST_FACTS = 3_000_000
"""Of all ranks together, about 1 GB. If their steps are longer, nothing is kept."""

Facts = list[Any]


@dataclass(slots=True)
class RankSteps:
    """One rank's facts from the end of a step on."""

    first: int = 0
    """Number of the marker that ends ``steps[0]``; 0: it begins with the run."""
    steps: deque[Facts] = field(default_factory=deque)
    """Each ends with its marker."""
    after: Facts = field(default_factory=list)
    """What follows the last marker."""
    fed: int = 0
    """Facts since the run's start."""
    streams: dict[int, Any] = field(default_factory=dict)
    """By number: STREAM_CREATE of the streams that there were before ``steps[0]``."""

    def since(self, marker: int) -> Facts:
        """All facts after this marker; -1: from the run's start."""
        place = marker + 1 - self.first
        return [fact for step in list(self.steps)[place:] for fact in step] + self.after

    def streams_at(self, marker: int) -> list[Any]:
        """STREAM_CREATE of the streams that there are at this marker."""
        streams = self.streams.copy()
        for step in list(self.steps)[: marker + 1 - self.first]:
            _follow(streams, step)
        return list(streams.values())


class LastSteps:
    """``add`` facts as they are fed to virtual time."""

    def __init__(self, world_size: int, steps_done: Callable[[int], int]) -> None:
        """`steps_done`: how many steps of a rank have ended in virtual time. Later ones are all kept."""
        self.ranks = [RankSteps() for _ in range(world_size)]
        self.missing = ""
        """Why facts are not kept; "": they are."""
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
            if fact.kind == records.MARKER and fact.marker == MarkerKind.STEP:
                mine.steps.append(mine.after + list(facts[begin:place]))
                mine.after = []
                begin = place
                self._forget(rank)
        mine.after.extend(facts[begin:])
        if self._kept > MOST_FACTS:
            self._give_up(f"the last {KEPT_STEPS} steps of all ranks have more than {MOST_FACTS:,} records")

    def restart(self) -> None:
        """All processes have ended; their ranks start again."""
        self._give_up("ranks were started again")

    def waited(self, wait: OutsideWait) -> None:
        """A rank has waited where no record tells of it, in a socket or for a file."""
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
    """Streams that these facts create and destroy."""
    for fact in facts:
        if fact.kind == records.STREAM_CREATE:
            streams[fact.stream] = fact
        elif fact.kind == records.STREAM_DESTROY:
            streams.pop(fact.stream, None)
