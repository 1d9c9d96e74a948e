"""Keeps which pages of a process are missing, and what they will be filled with."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Region:
    """Missing pages that lie one after another."""

    start: int
    end: int
    number: int
    """The number that the process has given to the values."""
    offset: int
    """The offset of the region's first byte in these values."""
    content: Any
    """The object that makes the values."""


@dataclass(slots=True)
class Regions:
    """The missing regions of one process; they do not overlap."""

    gone: list[int] = field(default_factory=list)
    """Numbers of values of which no page is missing any more, since the process was told."""
    _all: list[Region] = field(default_factory=list)
    """The regions in ascending order of addresses."""
    _starts: list[int] = field(default_factory=list)
    _pieces: Counter[int] = field(default_factory=Counter)
    """The number of regions that have each number of values."""

    def put(self, region: Region) -> None:
        self.cut(region.start, region.end)
        self._replace(bisect_right(self._starts, region.start), 0, [region])

    def cut(self, start: int, end: int) -> None:
        """Takes the pages from `start` to `end` out: they are not missing any more, or have no values."""
        first, last = self._range(start, end)
        kept = []
        for region in self._all[first:last]:
            if region.start < start:
                kept.append(replace(region, end=start))
            if region.end > end:
                kept.append(replace(region, start=end, offset=region.offset + end - region.start))
        self._replace(first, last - first, kept)

    def move(self, start: int, to: int, nbytes: int) -> None:
        """Moves the regions of pages that mremap(2) has moved."""
        moved = self.within(start, start + nbytes)
        self.cut(start, start + nbytes)
        for region in moved:
            self.put(replace(region, start=region.start - start + to, end=region.end - start + to))

    def within(self, start: int, end: int) -> list[Region]:
        """Returns the missing regions among these bytes, in ascending order, cut to the range."""
        first, last = self._range(start, end)
        return [
            replace(
                region,
                start=max(region.start, start),
                end=min(region.end, end),
                offset=region.offset + max(0, start - region.start),
            )
            for region in self._all[first:last]
        ]

    def copy(self) -> Regions:
        """Returns the regions of a child process, which has its parent's memory and numbers."""
        return Regions([], self._all.copy(), self._starts.copy(), self._pieces.copy())

    def all(self) -> list[Region]:
        return self._all.copy()

    def _range(self, start: int, end: int) -> tuple[int, int]:
        """Returns the index of the first region that overlaps the bytes and the index after the last one."""
        first = bisect_right(self._starts, start)
        if first and self._all[first - 1].end > start:
            first -= 1
        last = first
        while last < len(self._all) and self._all[last].start < end:
            last += 1
        return first, last

    def _replace(self, place: int, count: int, new: list[Region]) -> None:
        old = self._all[place : place + count]
        self._all[place : place + count] = new
        self._starts[place : place + count] = [region.start for region in new]
        self._pieces.update(region.number for region in new)
        if self.gone:
            self.gone = [number for number in self.gone if number not in self._pieces]
        for region in old:
            self._pieces[region.number] -= 1
            if not self._pieces[region.number]:
                del self._pieces[region.number]
                self.gone.append(region.number)
