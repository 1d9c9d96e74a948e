"""Back-pressure: how many facts may wait for virtual time before a rank is made to wait."""

from __future__ import annotations

from phantora_async.virtual_time import Timeline

RANK_FACTS = 50_000
ALL_FACTS = 200_000
"""Some 64 MB of records."""


class Backpressure:
    """Decides which ranks' sockets are not read for now.

    A rank is paused beyond its own bound, or, when all together have too much, beyond a fair share of that. It is
    resumed at half of what paused it.
    """

    def __init__(self, world_size: int) -> None:
        self._fair = max(ALL_FACTS // world_size, 64)
        self._fed = 0
        self._wider = 1
        self.paused: set[int] = set()

    def too_long(self, timeline: Timeline, rank: int, more: int) -> bool:
        """After `more` facts of the rank were fed: is it to be paused now?"""
        self._fed += more
        queued = timeline.queued(rank)
        limit = RANK_FACTS if self._fed - timeline.facts_done < ALL_FACTS * self._wider else self._fair
        if queued > limit * self._wider:
            self.paused.add(rank)
            return True
        return False

    def short_again(self, timeline: Timeline) -> list[int]:
        """Ranks to be resumed."""
        if not self.paused:
            return []
        limit = RANK_FACTS if self._fed - timeline.facts_done < ALL_FACTS // 2 else self._fair
        resumed = [rank for rank in self.paused if timeline.queued(rank) <= limit * self._wider // 2]
        self.paused.difference_update(resumed)
        return resumed

    def widen(self) -> list[int]:
        """Someone sleeps, maybe for a message that a paused rank would send: all are resumed, with twice the room."""
        self._wider *= 2
        resumed = sorted(self.paused)
        self.paused.clear()
        return resumed
