"""The speed of a GPU or a host as a function of virtual time that is known before anything happens.

Because it is fixed, no event announces a change and no rollback takes one back: the work done between two instants, and
the instant at which so much work is done, follow from the instants alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

FULL_PACE = 10**6
"""The pace of a GPU or host that is as fast as described. Work is counted in nanoseconds at full pace x FULL_PACE."""
NEVER = 1 << 62
PARTS = 256
"""The number of parts of an endless pace that are computed at once."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A pace that never stops changing: in the interval of length ``every_ns`` with this number it is
    ``pace(number)``.
    """

    every_ns: int
    pace: Callable[[int], int]


class Pace:
    """A pace: ``changes`` lists (instant, pace from then on), in order; before the first one it is FULL_PACE. ``parts``
    multiplies that. Callers count instants from ``origin_ns`` on. ``dead``: from when until when it is not slow, but
    broken; its pace is 0 then.
    """

    __slots__ = ("_changes", "_dead", "_origin_ns", "_parts", "done_until", "known_ns", "paces", "starts")

    def __init__(
        self,
        changes: Iterable[tuple[int, int]],
        parts: Parts | None = None,
        origin_ns: int = 0,
        dead: tuple[int, int] = (NEVER, NEVER),
    ) -> None:
        self._dead = dead
        self._changes = [(0, FULL_PACE), *changes]
        self._origin_ns = origin_ns
        assert self._changes == sorted(self._changes, key=lambda change: change[0]), "changes are in order"
        self._parts = parts
        self.known_ns = NEVER if parts is None else 0
        """The instant up to which the lists below are complete."""
        self.starts: list[int] = []
        """The instants at which the pace may change; the first is 0."""
        self.paces: list[int] = []
        """The pace from each of these instants on."""
        self.done_until: list[int] = []
        """The work that is done until each of these instants."""
        if parts is None:
            for at_ns, pace in self._changes:
                self._append(at_ns, pace)
        else:
            self._extend()

    def _append(self, at_ns: int, pace: int) -> None:
        if self.starts and self.starts[-1] == at_ns:
            self.paces[-1] = pace
            return
        done = self.done_until[-1] + self.paces[-1] * (at_ns - self.starts[-1]) if self.starts else 0
        self.starts.append(at_ns)
        self.paces.append(pace)
        self.done_until.append(done)

    def _extend(self) -> None:
        parts = self._parts
        assert parts is not None, "a pace that ends is known from the start"
        first = self.known_ns // parts.every_ns
        until_ns = (first + PARTS) * parts.every_ns
        instants = {number * parts.every_ns for number in range(first, first + PARTS)}
        instants |= {at_ns for at_ns, _ in self._changes if self.known_ns <= at_ns < until_ns}
        for at_ns in sorted(instants):
            place = bisect_right(self._changes, at_ns, key=lambda change: change[0]) - 1
            self._append(at_ns, self._changes[place][1] * parts.pace(at_ns // parts.every_ns) // FULL_PACE)
        self.known_ns = until_ns

    def know(self, at_ns: int) -> None:
        """Extends the lists beyond this instant."""
        while self.known_ns <= at_ns:
            self._extend()

    def since(self, origin_ns: int) -> Pace:
        """This pace for callers that count instants from `origin_ns` on."""
        return Pace(self._changes[1:], self._parts, origin_ns, self._dead)

    @property
    def dies_ns(self) -> int:
        """The instant from which it is broken; NEVER: it never is."""
        from_ns, _ = self._dead
        return NEVER if from_ns == NEVER else from_ns - self._origin_ns

    @property
    def frame(self) -> tuple[int, int, int]:
        """The frame for readers of ``starts`` and ``paces``: where instants begin, and from when until when it is
        broken.
        """
        return self._origin_ns, *self._dead

    def is_dead(self, at_ns: int) -> bool:
        from_ns, until_ns = self._dead
        return from_ns <= at_ns + self._origin_ns < until_ns

    def at(self, at_ns: int) -> int:
        """The pace from this instant on."""
        at_ns += self._origin_ns
        self.know(at_ns)
        return self.paces[bisect_right(self.starts, at_ns) - 1]

    def _done(self, at_ns: int) -> int:
        """The work that is done until an instant of the lists."""
        self.know(at_ns)
        place = bisect_right(self.starts, at_ns) - 1
        return self.done_until[place] + self.paces[place] * (at_ns - self.starts[place])

    def done(self, from_ns: int, to_ns: int) -> int:
        """The work that is done between two instants."""
        return self._done(to_ns + self._origin_ns) - self._done(from_ns + self._origin_ns)

    def end(self, from_ns: int, work: int) -> int:
        """The first whole nanosecond at which so much work is done that began at `from_ns`; NEVER if it never is."""
        if work <= 0:
            return from_ns
        target = self._done(from_ns + self._origin_ns) + work
        dead_from_ns, dead_until_ns = self._dead
        while self._parts is not None and self._done(self.known_ns - 1) < target:
            if dead_until_ns == NEVER and dead_from_ns < self.known_ns:
                return NEVER
            self._extend()
        place = bisect_left(self.done_until, target) - 1
        pace = self.paces[place]
        if not pace:
            return NEVER
        return self.starts[place] - (-(target - self.done_until[place]) // pace) - self._origin_ns

    def lasts(self, from_ns: int, for_ns: int) -> int:
        """The instant at which work is done that takes `for_ns` at full pace; NEVER if it never is."""
        return self.end(from_ns, for_ns * FULL_PACE)


def slowed(
    periods: Sequence[tuple[int, int, int]], parts: Parts | None = None, dead: tuple[int, int] = (NEVER, NEVER)
) -> Pace:
    """A pace from periods (from_ns, until_ns, share in millionths). Shares of periods that overlap are multiplied."""
    if dead[0] != NEVER:
        periods = (*periods, (*dead, 0))
    instants = sorted({at_ns for from_ns, until_ns, _ in periods for at_ns in (from_ns, until_ns) if at_ns < NEVER})
    changes = []
    for at_ns in instants:
        shares = [share for from_ns, until_ns, share in periods if from_ns <= at_ns < until_ns]
        changes.append((at_ns, reduce(lambda pace, share: pace * share // FULL_PACE, shares, FULL_PACE)))
    return Pace(changes, parts, dead=dead)


@dataclass(frozen=True, slots=True)
class Paces:
    """The paces of GPUs and hosts that are not as fast as described."""

    hosts: Mapping[int, Pace] = field(default_factory=dict)
    """The paces of hosts, by rank."""
    devices: Mapping[tuple[int, int], Pace] = field(default_factory=dict)
    """The paces of devices, by rank and the number of a device that it sees."""

    @property
    def ranks(self) -> frozenset[int]:
        """The ranks that have any pace."""
        return frozenset(self.hosts) | {rank for rank, _ in self.devices}

    def since(self, origin_ns: int) -> Paces:
        """Returns these paces for callers that count instants from `origin_ns` on."""
        return Paces(
            {rank: pace.since(origin_ns) for rank, pace in self.hosts.items()},
            {device: pace.since(origin_ns) for device, pace in self.devices.items()},
        )


NO_PACES = Paces()
