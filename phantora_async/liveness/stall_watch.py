"""How long ranks have waited, in real time, for one that says nothing new: it may compute for long, or loop for ever.

Nobody can tell which. So the user is told who waits for whom and where that rank is, and decides; see also
``--stall-timeout``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic

from phantora_async.coordinator.channel import Channel
from phantora_async.coordinator.communicators import named
from phantora_async.coordinator.fact_builder import FactBuilder
from phantora_async.liveness.blocked_ranks import BlockedRanks
from phantora_async.liveness.call_sites import Site
from phantora_async.liveness.rank_stacks import Stacks
from phantora_async.virtual_time import Timeline
from phantora_async.virtual_time.facts import Collective

STALL_S = 3.0
"""Before, a wait is nothing to speak of."""
ASK_EVERY_S = 10.0
"""How often a rank at work is asked where it is. One that sleeps is not: the signal would end its sleep() or poll()."""
FIRST_NOTICE_S = 30.0


@dataclass(frozen=True, slots=True)
class Stall:
    rank: int
    """Who says nothing new."""
    for_s: float
    doing: str
    site: Site | None
    """Where it was a moment ago, if that is known."""
    called: Site | None
    """Its last call that told where it was made."""
    waiting: tuple[int, ...]
    """Ranks that wait for an answer; empty if all are asleep."""

    def __str__(self) -> str:
        """``waiting 35 s for rank 3, which is running at train.py:17 in main``"""
        called = f" (last call at {self.called})" if self.called else ""
        at = f" at {self.site}" if self.site else called
        return f"waiting {self.for_s:.0f} s for rank {self.rank}, which {self.doing}{at}"

    def notice(self) -> str:
        """The same with who waits, for a log."""
        who = f"; {named(self.waiting)} {'waits' if len(self.waiting) == 1 else 'wait'}" if self.waiting else ""
        return f"{self}{who}"


class StallWatch:
    def __init__(
        self,
        timeline: Timeline,
        fact_builder: FactBuilder,
        channels: Mapping[int, Channel],
        blocked_ranks: BlockedRanks,
        stacks: Stacks,
    ) -> None:
        self._timeline = timeline
        self._fact_builder = fact_builder
        self._channels = channels
        self._blocked_ranks = blocked_ranks
        self._stacks = stacks
        self._heard_s: dict[int, float] = {}
        self._started_s = monotonic()
        self._asked: tuple[int, float] = (-1, 0.0)
        self._notice_s = FIRST_NOTICE_S

    def heard(self, rank: int) -> None:
        """The rank has said something new."""
        self._heard_s[rank] = monotonic()

    def look(self) -> Stall | None:
        """Who is waited for at this moment, if it has been for a while. Asks that rank where it is."""
        starved = self._timeline.starved
        if starved is None or self._fact_builder.rank_info[starved.rank].bye is not None:
            return None
        unanswered = self._fact_builder.communicators.unanswered() if self._blocked_ranks.sleeps(starved.rank) else {}
        rank = self._blocker(starved.rank, unanswered)
        for_s = monotonic() - self._heard_s.get(rank, self._started_s)
        if for_s < STALL_S:
            self._notice_s = FIRST_NOTICE_S
            return None
        others = (other for other in range(len(self._fact_builder.rank_info)) if other != rank)
        waiting = tuple(other for other in others if self._waits(other, unanswered))
        asleep = self._blocked_ranks.sleeps(rank)
        if not waiting and not asleep:
            return None
        if asleep:
            self._stacks.forget()
            self._asked = (-1, 0.0)
        else:
            self._ask(rank)
        if rank not in self._channels:
            doing = "has not started yet"
        elif self._fact_builder.rank_info[rank].questions:
            doing = "asks for the time, or whether work is done, again and again"
        else:
            doing = "is asleep" if asleep else "is running"
        (shown,) = self._timeline.snapshot([rank]).ranks
        called = self._fact_builder.site(rank, shown.last_site)
        return Stall(rank, for_s, doing, self._stacks.where(rank), called, waiting)

    def _waits(self, rank: int, unanswered: Mapping[int, Collective]) -> bool:
        """For an answer, or for the data of a collective that others have not called."""
        return bool(self._fact_builder.rank_info[rank].questions) or (
            rank in unanswered and self._blocked_ranks.sleeps(rank)
        )

    def _blocker(self, rank: int, unanswered: Mapping[int, Collective]) -> int:
        """Whom this rank's sleep is about in the end: from one that has called a collective on to one that has not."""
        seen = {rank}
        while rank in unanswered and self._blocked_ranks.sleeps(rank):
            collective = unanswered[rank]
            rank = next(other for other in collective.ranks if other not in collective.joined)
            if rank in seen:
                break
            seen.add(rank)
        return rank

    def notice_due(self, stall: Stall) -> bool:
        """After half a minute, then after twice as long each time."""
        if stall.for_s < self._notice_s:
            return False
        self._notice_s = 2 * stall.for_s
        return True

    def _ask(self, rank: int) -> None:
        now_s = monotonic()
        due = self._asked[0] != rank or now_s - self._asked[1] >= ASK_EVERY_S
        if due and self._blocked_ranks.computes(rank):
            self._asked = rank, now_s
            self._stacks.ask(rank, self._channels[rank].pid)
