"""Which pages of a process are missing, and what they will be filled with."""

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
    """What the process calls what it has given."""
    offset: int
    """Of the first byte in that."""
    content: Any
    """Makes the values."""


@dataclass(slots=True)
class Regions:
    """Of one process; they do not overlap."""

    gone: list[int] = field(default_factory=list)
    """Numbers of which no page is missing any more, since the process was told."""
    _all: list[Region] = field(default_factory=list)
    """In order."""
    _starts: list[int] = field(default_factory=list)
    _pieces: Counter[int] = field(default_factory=Counter)
    """By number."""

    def put(self, region: Region) -> None:
        self.cut(region.start, region.end)
        self._replace(bisect_right(self._starts, region.start), 0, [region])

    def cut(self, start: int, end: int) -> None:
        """Pages from `start` to `end` are not missing, or have no values."""
        first, last = self._range(start, end)
        kept = []
        for region in self._all[first:last]:
            if region.start < start:
                kept.append(replace(region, end=start))
            if region.end > end:
                kept.append(replace(region, start=end, offset=region.offset + end - region.start))
        self._replace(first, last - first, kept)

    def move(self, start: int, to: int, nbytes: int) -> None:
        """mremap(2) has moved the pages."""
        moved = self.within(start, start + nbytes)
        self.cut(start, start + nbytes)
        for region in moved:
            self.put(replace(region, start=region.start - start + to, end=region.end - start + to))

    def within(self, start: int, end: int) -> list[Region]:
        """What is missing of these bytes, in order."""
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
        """For a child process, which has its parent's memory and numbers."""
        return Regions([], self._all.copy(), self._starts.copy(), self._pieces.copy())

    def all(self) -> list[Region]:
        return self._all.copy()

    def _range(self, start: int, end: int) -> tuple[int, int]:
        """Places of those that overlap the bytes."""
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
