"""A number that changes at given instants: a link's capacity or latency."""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedDict


class ChangingValue:
    """A value over time: ``first`` until the earliest change; from each change on, the value that it sets."""

    __slots__ = ("_changes", "_first")

    def __init__(self, first: float) -> None:
        self._first = first
        self._changes: SortedDict[int, float] = SortedDict()

    def set(self, at_ns: int, value: float) -> None:
        """The value from ``at_ns`` until the next change."""
        self._changes[at_ns] = value

    def at(self, at_ns: int) -> float:
        """The value at an instant."""
        number = self._changes.bisect_right(at_ns)
        return float(self._changes.peekitem(number - 1)[1]) if number else self._first

    def changes_after(self, at_ns: int) -> Iterator[int]:
        """The instants after ``at_ns`` at which the value is set."""
        yield from self._changes.irange(at_ns, inclusive=(False, True))
