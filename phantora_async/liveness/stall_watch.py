"""Watches how long ranks have waited, in real time, for a rank that makes no visible progress.

That rank may compute for long or loop for ever; no one can tell which. The user is shown who waits for whom and where
that rank is, and decides; ``--stall-timeout`` is the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from phantora_async.ingest.call_sites import Site
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.liveness.blocked_ranks import BlockedRanks
from phantora_async.liveness.rank_stacks import Stacks
from phantora_async.virtual_time import Timeline
from phantora_async.virtual_time.facts import Collective
from phantora_async.wording import named

STALL_S = 3.0
"""The seconds below which waits are not shown."""
ASK_EVERY_S = 10.0
"""The seconds between two requests for a running rank's stack. A sleeping rank is not asked: the signal would interrupt
its wait.
"""
FIRST_NOTICE_S = 30.0


@dataclass(frozen=True, slots=True)
class Stall:
    rank: int
    """The rank that makes no visible progress."""
    for_s: float
    doing: str
    site: Site | None
    """The site at which it was when last asked; None if it was not."""
    called: Site | None
    """The last known call site."""
    waiting: tuple[int, ...]
    """The ranks that wait for an answer or have ended; empty if all are asleep, or if all run."""
    ended: bool
    """All of these have ended."""
    asleep: bool
    """The rank is asleep, not running."""
    computed: bool = False
    """All ranks wait for virtual time, which is being computed."""

    @property
    def counts(self) -> bool:
        """True if ``--stall-timeout`` applies. Ranks that are all asleep are a deadlock's business, and what is being
        computed comes to its end.
        """
        return not self.computed and (bool(self.waiting) or not self.asleep)

    def __str__(self) -> str:
        """The stall as text: ``waiting 35 s for rank 3, which is running at train.py:17 in main``."""
        if self.computed:
            return f"virtual time has been computed for {self.for_s:.0f} s, and the ranks wait for it"
        called = f" (last call at {self.called})" if self.called else ""
        at = f" at {self.site}" if self.site else called
        if not self.waiting and not self.asleep:
            return f"no visible progress for {self.for_s:.0f} s: rank {self.rank} {self.doing}{at}"
        return f"waiting {self.for_s:.0f} s for rank {self.rank}, which {self.doing}{at}"

    def notice(self) -> str:
        """The text of ``str`` with the ranks that wait, for a log."""
        if not self.waiting or self.computed:
            return str(self)
        one = len(self.waiting) == 1
        what = ("has ended" if one else "have ended") if self.ended else "waits" if one else "wait"
        return f"{self}; {named(self.waiting)} {what}"


class _Asked(NamedTuple):
    """The rank that was asked for its stack, and the real time of the request."""

    rank: int
    at_s: float


NOBODY = _Asked(-1, 0.0)


class StallWatch:
    def __init__(
        self,
        timeline: Timeline,
        fact_builder: FactBuilder,
        *,
        pids: Mapping[int, int],
        blocked_ranks: BlockedRanks,
        stacks: Stacks,
        computes_for_s: Callable[[], float],
    ) -> None:
        """`computes_for_s`: how long virtual time has been computed without a break; 0: it waits for ranks."""
        self._timeline = timeline
        self._fact_builder = fact_builder
        self._pids = pids
        self._blocked_ranks = blocked_ranks
        self._stacks = stacks
        self._computes_for_s = computes_for_s
        self._heard_s: dict[int, float] = {}
        self._started_s = monotonic()
        self._computed_s = self._started_s
        """The real time at which virtual time was last seen being computed: nobody could make progress until then."""
        self._asked = NOBODY
        self._notice_s = FIRST_NOTICE_S

    def heard(self, rank: int) -> None:
        """The rank has made visible progress."""
        self._heard_s[rank] = monotonic()

    def look(self) -> Stall | None:
        """The rank that others wait for, if they have waited for more than STALL_S. If none waits: the rank that
        virtual time waits for, if no rank has made visible progress for so long. Asks that rank for its stack. While
        virtual time is being computed, no rank is to blame.
        """
        computes_s = self._computes_for_s()
        if computes_s:
            self._computed_s = monotonic()
        starved = self._blocked_ranks.starved
        if starved is None or self._fact_builder.rank_info[starved].bye is not None:
            return None
        # A rank that sleeps may itself wait for another one: that one is to blame.
        asleep = self._blocked_ranks.sleeps(starved)
        incomplete = self._fact_builder.incomplete_collectives() if asleep else {}
        rank = self._blocker(starved, incomplete)
        for_s = monotonic() - self._heard_s.get(rank, self._started_s)
        if for_s < STALL_S:  # the usual case: nobody looks at thousands of other ranks
            self._notice_s = FIRST_NOTICE_S
            return None
        others = (other for other in range(len(self._fact_builder.rank_info)) if other != rank)
        waiting = tuple(other for other in others if self._waits(other, incomplete) or self._has_ended(other))
        asleep = self._blocked_ranks.sleeps(rank)
        # Nobody waits for a rank that runs: then the time counts since any rank was heard.
        if not waiting and not asleep:
            for_s = monotonic() - max(self._heard_s.values(), default=self._started_s)
        # Virtual time itself has been computed for as long: no rank is to blame for that wait.
        if min(for_s, computes_s) > STALL_S:
            return Stall(rank, min(for_s, computes_s), "", None, None, waiting, False, asleep, computed=True)
        for_s = min(for_s, monotonic() - self._computed_s)
        if for_s < STALL_S:
            self._notice_s = FIRST_NOTICE_S
            return None
        # A stack of before the sleep would mislead. A sleeping rank is not asked: the signal would interrupt its wait.
        if asleep:
            self._stacks.forget()
            self._asked = NOBODY
        else:
            self._ask(rank)
        if rank not in self._pids:
            doing = "has not started yet"
        elif self._fact_builder.rank_info[rank].questions:
            doing = "is polling (it asks for the time, or whether work is done)"
        else:
            doing = "is asleep" if asleep else "is running"
            if self._blocked_ranks.stopped(rank):
                doing = f"a signal (SIGSTOP) has stopped; it goes on after kill -CONT {self._pids[rank]}"
        (shown,) = self._timeline.snapshot([rank]).ranks
        called = self._fact_builder.site(rank, shown.last_site)
        ended = all(map(self._has_ended, waiting))
        return Stall(rank, for_s, doing, self._stacks.where(rank), called, waiting, ended, asleep)

    def _has_ended(self, rank: int) -> bool:
        return self._fact_builder.rank_info[rank].bye is not None

    def _waits(self, rank: int, incomplete: Mapping[int, Collective]) -> bool:
        """Returns true if the rank waits for an answer, or for the data of a collective that others have not called."""
        return bool(self._fact_builder.rank_info[rank].questions) or (
            rank in incomplete and self._blocked_ranks.sleeps(rank)
        )

    def _blocker(self, rank: int, incomplete: Mapping[int, Collective]) -> int:
        """The rank that a sleeping rank waits for in the end: from a collective to a member that has not called it."""
        seen = {rank}
        while rank in incomplete and self._blocked_ranks.sleeps(rank):
            collective = incomplete[rank]
            missing = next(other for other in collective.callers if other not in collective.joined)
            rank = self._blocked_ranks.played_by(missing)
            if rank in seen:
                break
            seen.add(rank)
        return rank

    def notice_due(self, stall: Stall) -> bool:
        """Returns true if the wait is to be logged now: after FIRST_NOTICE_S, then each time after twice as long."""
        if stall.for_s < self._notice_s:
            return False
        self._notice_s = 2 * stall.for_s
        return True

    def _ask(self, rank: int) -> None:
        now_s = monotonic()
        due = self._asked.rank != rank or now_s - self._asked.at_s >= ASK_EVERY_S
        if due and self._blocked_ranks.computes(rank):
            self._asked = _Asked(rank, now_s)
            self._stacks.ask(rank, self._pids[rank])
