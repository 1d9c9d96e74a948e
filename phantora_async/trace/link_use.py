"""Computes the use of each link by collectives over time: each one's mean rate over its duration, summed over all."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from phantora_async.trace.spans import Moved
from phantora_async.trace.writing import Context
from phantora_async.virtual_time import Collective

CollectiveKey = tuple[int, int, int, tuple[int, ...]]

_MOST_CHANGES = 100_000
"""The most changes that are kept back, in case an earlier one comes."""


def key_of(collective: Collective) -> CollectiveKey:
    """Identifies a collective by the fields on which all members that report it agree."""
    return collective.comm.id, collective.seq, collective.op, collective.ranks


class LinkUse:
    """Adds up rates: ``add`` what moved, in any order; changes of a link's rate go to `count(link, at_ns, gbps)` in
    order of time.
    """

    def __init__(self, context: Context, count: Callable[[int, int, float], None]) -> None:
        self._context = context
        self._count = count
        self._seen: dict[CollectiveKey, int] = {}
        """The collectives that a member has already reported, with the number of members that have not."""
        self._changes: list[tuple[int, int, float]] = []
        """A heap of (instant, link, change in Gbit/s)."""
        self._rates: dict[int, float] = {}

    def add(self, moved: Moved) -> None:
        """Adds a collective. Each member that is traced reports it; it is counted once."""
        collective = moved.collective
        key = key_of(collective)
        left = self._seen.pop(key, None)
        if left is not None:
            if left > 1:
                self._seen[key] = left - 1
            return
        traced = sum(rank in self._context.traced for rank in set(collective.ranks))
        if traced > 1:
            self._seen[key] = traced - 1
        for_ns = moved.done_ns - moved.begun_ns
        if for_ns <= 0:
            return
        for group in self._context.plan(collective).groups:
            for link, weight in group.links:
                gbps = group.nbytes * weight * 8 / for_ns
                heappush(self._changes, (moved.begun_ns, link, gbps))
                heappush(self._changes, (moved.done_ns, link, -gbps))
        while len(self._changes) > _MOST_CHANGES:
            self._release()

    def _release(self) -> None:
        at_ns, link, change = heappop(self._changes)
        rate = self._rates.get(link, 0.0) + change
        self._rates[link] = rate = rate if rate > 1e-6 else 0.0
        if not self._changes or self._changes[0][:2] != (at_ns, link):
            self._count(link, at_ns, rate)

    def close(self) -> None:
        while self._changes:
            self._release()
