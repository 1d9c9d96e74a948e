"""Counts the bytes that each link has carried, in equal parts of virtual time: those of a collective are spread evenly
over its duration.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netsim.collectives import Plan
from phantora_async.over_time.samples import SHORT_NS

MOST_PENDING = 50_000
"""The most entries that wait to be added up."""
MOST_SUMS = 1 << 20
"""The most sums of groups of links, of all parts of time."""
MOST_KEPT_LINKS = 1 << 20
"""The most links of the groups that have sums of their own."""

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

    Collectives of one kind have the same groups of links, so bytes are added up by group. A group of a large job has
    thousands of links, which get their sums when these are asked for, or when there are too many groups.
    """

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._width_ns = SHORT_NS // parts
        self._pending: dict[tuple[int, int], int] = {}
        """The bytes of a hop, by the identity of its group's links and by part of time."""
        self._sums: dict[int, NDArray[np.int64]] = {}
        """The bytes of a hop by part of time, by the identity of its group's links."""
        self._links: dict[int, Links] = {}
        """The links of groups, by their identity. They stay alive here, so that no other object gets it."""
        self._kept_links = 0
        """The number of links in ``_links``."""
        self._place_of: dict[int, int] = {}
        """The column of each link in ``_nbytes``."""
        self._nbytes = np.zeros((parts, 0), np.int64)
        """The bytes of links whose groups have no sums any more."""

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
        if len(pending) > MOST_PENDING:
            self._gather()
        if self._kept_links > MOST_KEPT_LINKS or len(self._sums) * self._parts > MOST_SUMS:
            self._settle()

    def _widen(self, until_ns: int) -> None:
        self._gather()
        while until_ns > self._parts * self._width_ns:
            self._width_ns *= 2
            self._sums = {number: _halved(sums) for number, sums in self._sums.items()}
            self._nbytes = _halved(self._nbytes)

    def _gather(self) -> None:
        """Adds what is pending to the sums of groups."""
        for (number, part), nbytes in self._pending.items():
            sums = self._sums.get(number)
            if sums is None:
                sums = self._sums[number] = np.zeros(self._parts, np.int64)
            sums[part] += nbytes
        self._pending.clear()

    def _settle(self) -> None:
        """Adds the sums of groups to those of their links."""
        self._gather()
        added = {link for links in self._links.values() for link, _ in links} - self._place_of.keys()
        for link in sorted(added):
            self._place_of[link] = len(self._place_of)
        if added:
            self._nbytes = np.pad(self._nbytes, ((0, 0), (0, len(added))))
        for number, sums in self._sums.items():
            weights: dict[int, int] = {}
            for link, weight in self._links[number]:
                weights[self._place_of[link]] = weights.get(self._place_of[link], 0) + weight
            places, times = np.fromiter(weights, np.int64), np.fromiter(weights.values(), np.int64)
            for part in np.flatnonzero(sums):
                self._nbytes[part, places] += sums[part] * times
        self._sums.clear()
        self._links.clear()
        self._kept_links = 0

    def _copy(self) -> LinkTraffic:
        made = LinkTraffic(self._parts)
        made._width_ns = self._width_ns
        made._pending = dict(self._pending)
        made._sums = {number: sums.copy() for number, sums in self._sums.items()}
        made._links, made._kept_links = dict(self._links), self._kept_links
        made._place_of, made._nbytes = dict(self._place_of), self._nbytes.copy()
        return made

    def traffic(self, more: Iterable[Carried] = ()) -> Traffic:
        """The sums together with those of `more`; nothing of it is kept."""
        copied = self._copy()
        for carried in more:
            copied.add(carried)
        copied._settle()
        # Hops that a group lacks may have been all that its shared links have on a link.
        used = np.logical_or.reduce(copied._nbytes, axis=0)
        links = sorted(link for link, place in copied._place_of.items() if used[place])
        places = [copied._place_of[link] for link in links]
        in_order = len(places) == copied._nbytes.shape[1] and places == sorted(places)
        return Traffic(copied._width_ns, links, copied._nbytes if in_order else copied._nbytes[:, places])


def _halved(sums: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sums of parts of time that are twice as long; as many parts follow in which nothing has been carried."""
    half = sums[0::2] + sums[1::2]
    return np.concatenate([half, np.zeros_like(half)])
