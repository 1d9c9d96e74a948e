"""Back-pressure: limits how many facts may wait for virtual time before their rank's socket is no longer read."""

from __future__ import annotations

from phantora_async.virtual_time import Timeline

RANK_FACTS = 50_000
ALL_FACTS = 200_000
"""The most facts of all ranks that may wait, some 64 MB of records."""
FEWEST_FACTS = 64
"""A rank's share of ALL_FACTS is at least this, however many ranks there are."""


class Backpressure:
    """Decides which ranks are paused: their sockets are not read for now.

    A rank is paused when it has more than RANK_FACTS queued or, while all ranks together have more than ALL_FACTS, more
    than its share of that. It is resumed when its queue has shrunk to half of what applies then.
    """

    def __init__(self, timeline: Timeline, world_size: int) -> None:
        self._timeline = timeline
        self._share = max(ALL_FACTS // world_size, FEWEST_FACTS)
        self._fed = 0
        self._factor = 1
        """The factor on every limit; see ``double``."""
        self.paused: set[int] = set()

    def must_pause(self, rank: int, fed: int) -> bool:
        """Counts `fed` facts of the rank that were fed to the timeline. Returns true if the rank is to be paused
        now.
        """
        self._fed += fed
        limit = RANK_FACTS if self._fed - self._timeline.facts_done < ALL_FACTS * self._factor else self._share
        if self._timeline.queued(rank) <= limit * self._factor:
            return False
        self.paused.add(rank)
        return True

    def may_resume(self) -> list[int]:
        """The paused ranks whose queues have shrunk enough. They count as resumed."""
        if not self.paused:
            return []
        limit = RANK_FACTS if self._fed - self._timeline.facts_done < ALL_FACTS // 2 else self._share
        resumed = [rank for rank in self.paused if self._timeline.queued(rank) <= limit * self._factor // 2]
        self.paused.difference_update(resumed)
        return resumed

    def restart(self, dropped: int) -> None:
        """All processes have ended, and so many of their facts will not be executed."""
        self._fed -= dropped
        self.paused.clear()

    def double(self) -> list[int]:
        """Doubles every limit and resumes all paused ranks, which it returns.

        This is for a rank that sleeps: it may be waiting for a message that a paused rank would send.
        """
        self._factor *= 2
        resumed = sorted(self.paused)
        self.paused.clear()
        return resumed
