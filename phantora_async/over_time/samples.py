"""Samples what each GPU does in equal parts of virtual time: for pictures of ranks over time.

A device keeps its accounts at the multiples of a width, which doubles when virtual time has become too long for the
number of samples. What is simulated again after a rollback is written again.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phantora_async.figures import TIME_ACCOUNTS

ACCOUNTS = len(TIME_ACCOUNTS)
"""The number of figures in a sample."""
MOST_PARTS, LEAST_PARTS, ALL_PARTS = 1024, 128, 32768
SHORT_NS = 1 << 27
"""The duration in ns of a run that is shown in as many parts as there may be."""


def parts_for(world_size: int) -> int:
    """The most parts of time that are shown, a power of 2: fewer for more ranks."""
    parts = LEAST_PARTS
    while parts < MOST_PARTS and 2 * parts * world_size <= ALL_PARTS:
        parts *= 2
    return parts


def width_for(until_ns: int, parts: int) -> int:
    """The width in ns of a part of time when there are at most `parts` of them, a power of 2."""
    width_ns = SHORT_NS // parts
    while until_ns > parts * width_ns:
        width_ns *= 2
    return width_ns


class Samples:
    """The ``TIME_ACCOUNTS`` of one device at the instants 0, ``width_ns``, 2 x ``width_ns`` ..., one after another."""

    __slots__ = ("_most", "figures", "width_ns")

    def __init__(self, parts: int) -> None:
        self._most = 2 * parts
        """More than are shown: what is simulated ahead of time and taken back must not decide the width."""
        self.width_ns = SHORT_NS // parts
        self.figures = array("q")

    def copy(self) -> Samples:
        made = Samples(self._most // 2)
        made.width_ns, made.figures = self.width_ns, self.figures[:]
        return made

    def make_room(self, until_ns: int) -> int:
        """Doubles the width until samples up to this instant fit. Returns the width in ns."""
        while until_ns > self._most * self.width_ns:
            self.width_ns *= 2
            self.figures = array("q", self.at(2).tobytes())
        return self.width_ns

    def put(self, place: int, accounts: tuple[int, ...]) -> None:
        """Writes a sample. `place`: its number, at most one behind the last."""
        figures, at = self.figures, place * ACCOUNTS
        if at == len(figures):
            figures.extend(accounts)
        else:
            figures[at : at + ACCOUNTS] = array("q", accounts)

    def at(self, every: int) -> NDArray[np.int64]:
        """Every `every`-th sample, by sample and account. It is a view, which must be gone before ``put`` is called
        again.
        """
        return np.frombuffer(self.figures, np.int64).reshape(-1, ACCOUNTS)[::every]


class MemoryChange:
    """A change of a device's peaks of memory, with the change before it (None before the first)."""

    __slots__ = ("allocated", "at_ns", "before", "device", "reserved")

    def __init__(self, before: MemoryChange | None, at_ns: int, device: int, allocated: int, reserved: int) -> None:
        self.before = before
        self.at_ns = at_ns
        self.device = device
        self.allocated = allocated
        self.reserved = reserved


@dataclass(frozen=True, slots=True, eq=False)
class Activity:
    width_ns: int
    until_ns: int
    accounts: Sequence[NDArray[np.int64]]
    """The accounts of all devices of each rank, by account and instant: at 0, width, 2 x width ... and `until_ns`."""
    memory: Sequence[NDArray[np.int64]]
    """The peaks of memory of each rank until these instants, in bytes: allocated, reserved."""
    devices: Sequence[int]
    """The number of GPUs that each rank has used."""


def accounts_at(samples: Samples, width_ns: int, until_ns: int, final: Sequence[int]) -> NDArray[np.int64]:
    """The accounts at the multiples of this width before `until_ns`, to which samples reach, followed by the `final`
    ones.
    """
    places = -(-until_ns // width_ns)
    found = np.empty((ACCOUNTS, places + 1), np.int64)
    found[:, places] = final
    found[:, :places] = samples.at(width_ns // samples.width_ns)[:places].T
    return found


def memory_at(last: MemoryChange | None, width_ns: int, until_ns: int) -> NDArray[np.int64]:
    """The peaks of all devices together, at the same instants. `last`: the latest change."""
    found = np.zeros((2, -(-until_ns // width_ns) + 1), np.int64)
    later: dict[int, int] = {}
    change = last
    while change is not None:
        from_place = -(-change.at_ns // width_ns)
        to_place = later.get(change.device, found.shape[1])
        found[:, from_place:to_place] += np.array([[change.allocated], [change.reserved]])
        later[change.device] = min(from_place, to_place)
        change = change.before
    return found
