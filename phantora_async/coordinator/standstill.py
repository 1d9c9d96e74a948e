"""Virtual time waits for a rank's next fact: what if the rank sleeps until another rank continues?"""

from __future__ import annotations

from phantora_async.coordinator.connections import Connections
from phantora_async.errors import Deadlock
from phantora_async.liveness.blocked_ranks import BlockedRanks
from phantora_async.virtual_time import Timeline
from phantora_async.wording import named

PATIENCE_S = 30.0
"""All asleep for so long, with nothing to simulate: a deadlock. A shorter sleep may be a slow download or disk."""


class Standstill:
    def __init__(self, timeline: Timeline, connections: Connections, blocked_ranks: BlockedRanks) -> None:
        self._timeline = timeline
        self._connections = connections
        self._blocked_ranks = blocked_ranks
        self.passed_over = 0
        """How often virtual time continued without ranks that slept where no record tells of it."""

    def first_look_s(self) -> float:
        """How long after virtual time came to a standstill to look for the first time."""
        return self._blocked_ranks.first_look_s()

    def look(self) -> float | None:
        """None if virtual time can now continue, else in how many seconds to look again. Raises Deadlock."""
        verdict = self._blocked_ranks.look()
        if not verdict.asleep or self._connections.resume_all():
            return verdict.again_s
        if verdict.stuck_s > PATIENCE_S:
            asleep = f"{named(verdict.asleep)} {'is' if len(verdict.asleep) == 1 else 'are'} asleep"
            raise Deadlock(
                f"deadlock: no rank has made progress for {verdict.stuck_s:.0f} s; {asleep} in a lock, a socket or a "
                "child process of the script"
            )
        self._timeline.pass_over(verdict.asleep)
        self.passed_over += 1
        return None
