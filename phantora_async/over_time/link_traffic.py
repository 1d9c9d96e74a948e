"""Counts the bytes that each link has carried, in equal parts of virtual time: those of a collective are spread evenly
over its duration.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netsim.collectives import Plan
from phantora_async.over_time.samples import SHORT_NS

MOST_PENDING = 50_000
"""The most entries, with ``MOST_PENDING_LINKS`` links in all, that wait to be added up."""
MOST_PENDING_LINKS = 1 << 20

Links = Sequence[tuple[int, int]]
"""The links of a group, each with the number of the group's hops that it carries."""


class Carried(NamedTuple):
    """A collective whose data moved in this time."""

    plan: Plan
    start_ns: int
    done_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    width_ns: int
    links: Sequence[int]
    """The numbers of the links that have carried something."""
    nbytes: NDArray[np.int64]
    """The bytes by part of time and by place in ``links``."""


class LinkTraffic:
    """Adds up whole bytes, divided at fixed instants: the sums do not depend on the order in which collectives are
    added.
    """

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._width_ns = SHORT_NS // parts
        self._pending: dict[tuple[int, int], int] = {}
        """The bytes of a hop, by the identity of its group's links and by part of time."""
        self._links: dict[int, Links] = {}
        """The links of ``_pending``, by their identity. They stay alive here, so that no other object gets it."""
        self._kept_links = 0
        """The number of links in ``_links``."""
        self._place_of: dict[int, int] = {}
        """The column of each link in ``_nbytes``."""
        self._nbytes = np.zeros((parts, 0), np.int64)

    def add(self, carried: Carried) -> None:
        start_ns, done_ns = carried.start_ns, max(carried.done_ns, carried.start_ns + 1)
        if done_ns > self._parts * self._width_ns:
            self._widen(done_ns)
        width_ns, pending = self._width_ns, self._pending
        first, last = start_ns // width_ns, (done_ns - 1) // width_ns
        for group in carried.plan.groups:
            for links, sign in group.summands:
                number = id(links)
                if number not in self._links:
                    self._links[number] = links
                    self._kept_links += len(links)
                before = 0
                for part in range(first, last + 1):
                    until_ns = min((part + 1) * width_ns, done_ns)
                    upto = group.nbytes * (until_ns - start_ns) // (done_ns - start_ns)
                    pending[number, part] = pending.get((number, part), 0) + sign * (upto - before)
                    before = upto
        if len(pending) > MOST_PENDING or self._kept_links > MOST_PENDING_LINKS:
            self._settle()

    def _widen(self, until_ns: int) -> None:
        self._settle()
        while until_ns > self._parts * self._width_ns:
            self._width_ns *= 2
            half = self._nbytes[0::2] + self._nbytes[1::2]
            self._nbytes = np.concatenate([half, np.zeros_like(half)])

    def _settle(self) -> None:
        """Adds what is pending to the sums of links."""
        for links in self._links.values():
            for link, _ in links:
                self._place_of.setdefault(link, len(self._place_of))
        if (more := len(self._place_of) - self._nbytes.shape[1]) > 0:
            self._nbytes = np.pad(self._nbytes, ((0, 0), (0, more)))
        by_links: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        for number, links in self._links.items():
            weights: dict[int, int] = {}
            for link, weight in links:
                weights[self._place_of[link]] = weights.get(self._place_of[link], 0) + weight
            by_links[number] = np.fromiter(weights, np.int64), np.fromiter(weights.values(), np.int64)
        for (number, part), nbytes in self._pending.items():
            places, times = by_links[number]
            self._nbytes[part, places] += nbytes * times
        self._pending.clear()
        self._links.clear()
        self._kept_links = 0

    def traffic(self, more: Iterable[Carried] = ()) -> Traffic:
        """The sums together with those of `more`, which are not kept."""
        self._settle()
        copied = deepcopy(self) if more else self
        for carried in more:
            copied.add(carried)
        copied._settle()
        # Hops that a group lacks may have been all that its shared links have on a link.
        used = np.logical_or.reduce(copied._nbytes, axis=0)
        links = sorted(link for link, place in copied._place_of.items() if used[place])
        return Traffic(copied._width_ns, links, copied._nbytes[:, [copied._place_of[link] for link in links]])
