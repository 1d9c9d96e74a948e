"""Finds ranks that poll for ever: for a file, a key of a store or an object in memory that would come from a rank which
waits for them.

A rank that looks and sleeps in turns lets virtual time pass, quickly, and is never asleep in real time. So it is no
deadlock by itself. But on a cluster those that wait for it would end by their timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic

from emu.contract.definitions.thread_names import SERVES, WATCHES
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.liveness.blocked_ranks import BlockedRanks
from phantora_async.liveness.bystanders import worked
from phantora_async.liveness.patience import limit_s
from phantora_async.liveness.sleep_detector import NotKnownYet, Processes, Thread
from phantora_async.virtual_time import Timeline
from phantora_async.wording import named

PATIENCE_S = 30.0
"""The real seconds without progress below which nobody polls for ever: what is polled for may come from somebody who
sleeps in a download or a disk.
"""
LIMIT_NS = 1_800_000_000_000
"""The virtual time after which those that wait would have ended: gloo's default timeout, and three times NCCL's."""
LOOK_EVERY_S = 1.0
"""The seconds between two looks at threads."""


@dataclass(frozen=True, slots=True)
class Polling:
    """Ranks that poll, and ranks that wait for them."""

    ranks: tuple[int, ...]
    waiting: tuple[int, ...]
    for_ns: int

    def __str__(self) -> str:
        """The state as text: ``rank 1 has only looked and slept for 30 minutes of virtual time, and rank 0 waits``."""
        has = "has" if len(self.ranks) == 1 else "have"
        waits = "waits" if len(self.waiting) == 1 else "wait"
        minutes = self.for_ns // 60_000_000_000
        return (
            f"{named(self.ranks)} {has} only looked and slept for {minutes} minutes of virtual time, "
            f"and {named(self.waiting)} {waits}"
        )


class PollWatch:
    def __init__(
        self,
        timeline: Timeline,
        fact_builder: FactBuilder,
        *,
        pids: Mapping[int, int],
        blocked_ranks: BlockedRanks,
        others_work: Callable[[], bool],
        listens: Callable[[], object | None],
        processes: Processes,
        given_s: float | None,
    ) -> None:
        """`others_work`: tells whether processes that are no ranks work. `listens`: finds a program that waits for
        somebody to connect. `given_s`: ``--stall-timeout``.
        """
        self._timeline = timeline
        self._fact_builder = fact_builder
        self._pids = pids
        self._blocked_ranks = blocked_ranks
        self._others_work = others_work
        self._listens = listens
        self._processes = processes
        self._patience_s = limit_s(given_s, PATIENCE_S)
        self._seen: dict[int, Thread] = {}
        """The threads beside the ranks' first ones, as last seen."""
        self._looked_s = 0.0
        self._progressed()

    def heard(self) -> None:
        """Some rank has made visible progress."""
        self._progressed()

    def _progressed(self) -> None:
        self._since_s, self._since_ns = monotonic(), self._timeline.now_ns

    def look(self) -> Polling | None:
        """The ranks that poll for ever. To be called about twice a second."""
        now_s, for_ns = monotonic(), self._timeline.now_ns - self._since_ns
        if now_s - self._since_s < self._patience_s or for_ns < LIMIT_NS:
            return None
        incomplete = self._fact_builder.incomplete_collectives()
        waiting: list[int] = []
        polling: list[int] = []
        for rank in self._pids:
            if self._fact_builder.rank_info[rank].bye is None:
                waits = rank in incomplete or self._blocked_ranks.sleeps(rank)
                (waiting if waits else polling).append(rank)
        if not waiting or not polling or self._somebody_works(now_s):
            return None
        if not incomplete and self._listens() is not None:
            return None  # a server whose next request has not come
        return Polling(tuple(sorted(polling)), tuple(sorted(waiting)), for_ns)

    def _somebody_works(self, now_s: float) -> bool:
        """Returns true unless two looks, LOOK_EVERY_S apart, find that nobody but the ranks' first threads works."""
        elapsed_s = now_s - self._looked_s
        if elapsed_s < LOOK_EVERY_S:
            return True
        before, self._seen, self._looked_s = self._seen, self._beside(), now_s
        first = elapsed_s > self._patience_s
        return first or worked(before, self._seen, elapsed_s) or self._others_work()

    def _beside(self) -> dict[int, Thread]:
        found: dict[int, Thread] = {}
        for pid in self._pids.values():
            try:
                seen = self._processes.look(pid)
            except NotKnownYet:  # it is on another machine, which tells at the next look
                continue
            threads = {} if seen is None else seen.threads
            found |= {
                number: thread
                for number, thread in threads.items()
                if number != pid and not thread.name.startswith((*SERVES, *WATCHES))
            }
        return found
