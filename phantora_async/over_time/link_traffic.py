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
    """Links of a large job carry the same bytes as many others do, so these are here once."""

    width_ns: int
    links: Sequence[int]
    """The numbers of the links that have carried something."""
    courses: NDArray[np.int64]
    """The bytes by part of time, one row for links that have carried the same."""
    course_of: NDArray[np.int64]
    """The row in ``courses`` by place in ``links``."""

    @property
    def nbytes(self) -> NDArray[np.int64]:
        """The bytes by part of time and by place in ``links``."""
        return self.courses[self.course_of].T


class _Courses:
    """The bytes that links have carried in each part of time. Links that were always in the same groups share a row."""

    def __init__(self, parts: int) -> None:
        self.of_link = np.zeros(0, np.int64)
        """The number of each link's row."""
        self._rows = np.zeros((1, parts), np.int64)
        """The rows by number, and room for more. The first one is that of links which have carried nothing."""
        self._links = np.zeros(1, np.int64)
        """The number of links that have each row; 0: a row that links have left."""
        self._count = 1

    @property
    def rows(self) -> NDArray[np.int64]:
        return self._rows[: self._count]

    def expect(self, links: int) -> None:
        """Makes room for so many more links, which have carried nothing."""
        self.of_link = np.concatenate([self.of_link, np.zeros(links, np.int64)])
        self._links[0] += links

    def add(self, links: NDArray[np.int64], times: NDArray[np.int64], nbytes: NDArray[np.int64]) -> None:
        """Adds bytes by part of time to each of these links, so many times."""
        wide = int(times.max(initial=0)) - (least := int(times.min(initial=0))) + 1
        pairs, which, counts = np.unique(
            self.of_link[links] * wide + (times - least), return_inverse=True, return_counts=True
        )
        before, factors = pairs // wide, pairs % wide + least
        # A row whose links all carry the same now stays theirs, but for that of nothing; others get a new one.
        row_of = np.where((counts == self._links[before]) & (before > 0), before, -1)
        new = np.flatnonzero(row_of < 0)
        row_of[new] = range(self._count, self._count + len(new))
        self._make_room(len(new))
        self._rows[row_of] = self._rows[before] + factors[:, None] * nbytes
        np.subtract.at(self._links, before[new], counts[new])
        self._links[row_of[new]] = counts[new]
        self.of_link[links] = row_of[which]

    def _make_room(self, rows: int) -> None:
        self._count += rows
        if (more := self._count - len(self._rows)) > 0:
            more = max(more, len(self._rows))
            self._rows = np.concatenate([self._rows, np.zeros((more, self._rows.shape[1]), np.int64)])
            self._links = np.concatenate([self._links, np.zeros(more, np.int64)])

    def leave_out_unused(self) -> None:
        used = np.flatnonzero(self._links[: self._count])
        used = used if len(used) and used[0] == 0 else np.concatenate([[0], used])
        self._rows, self._links, self._count = self._rows[used], self._links[used], len(used)
        self.of_link = np.searchsorted(used, self.of_link)

    def halve(self) -> None:
        self._rows = _halved(self._rows)

    def copy(self) -> _Courses:
        made = _Courses(0)
        made.of_link, made._rows, made._links = self.of_link.copy(), self.rows.copy(), self._links[: self._count].copy()
        made._count = self._count
        return made


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
        """The place of each link in ``_courses``."""
        self._courses = _Courses(parts)
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
            self._courses.halve()

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
        self._courses.expect(len(added))
        for number, sums in self._sums.items():
            weights: dict[int, int] = {}
            for link, weight in self._links[number]:
                weights[self._place_of[link]] = weights.get(self._place_of[link], 0) + weight
            self._courses.add(np.fromiter(weights, np.int64), np.fromiter(weights.values(), np.int64), sums)
        self._courses.leave_out_unused()
        self._sums.clear()
        self._links.clear()
        self._kept_links = 0

    def _copy(self) -> LinkTraffic:
        made = LinkTraffic(self._parts)
        made._width_ns = self._width_ns
        made._pending = dict(self._pending)
        made._sums = {number: sums.copy() for number, sums in self._sums.items()}
        made._links, made._kept_links = dict(self._links), self._kept_links
        made._place_of, made._courses = dict(self._place_of), self._courses.copy()
        return made

    def traffic(self, more: Iterable[Carried] = ()) -> Traffic:
        """The sums together with those of `more`; nothing of it is kept."""
        copied = self._copy()
        for carried in more:
            copied.add(carried)
        copied._settle()
        # Hops that a group lacks may have been all that its shared links have on a link.
        courses, course_of = copied._courses.rows, copied._courses.of_link
        used = np.logical_or.reduce(courses, axis=1)[course_of]
        links = sorted(link for link, place in copied._place_of.items() if used[place])
        places = np.fromiter((copied._place_of[link] for link in links), np.int64, len(links))
        return Traffic(copied._width_ns, links, courses, course_of[places])


def _halved(sums: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sums of parts of time that are twice as long; as many parts follow in which nothing has been carried."""
    half = sums[..., 0::2] + sums[..., 1::2]
    return np.concatenate([half, np.zeros_like(half)], axis=-1)
