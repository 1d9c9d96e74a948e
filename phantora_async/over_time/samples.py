"""What each GPU did in equal parts of virtual time: for pictures of ranks over time.

A device keeps its accounts at the multiples of a width, which doubles when virtual time has become too long for the
number of samples. What is simulated again after a rollback is written again.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FIRST_WIDTH_NS = 1 << 16
FIELDS = ("compute_ns", "transfer_ns", "peers_ns", "host_bound_ns", "idle_ns", "allocated", "reserved")
"""Accounts of the device, and its peaks of memory until then, in bytes."""
MOST_PARTS, LEAST_PARTS, ALL_PARTS = 2048, 128, 65536


def parts_for(world_size: int) -> int:
    """At most so many parts of time are shown, a power of 2: fewer for more ranks."""
    parts = LEAST_PARTS
    while parts < MOST_PARTS and 2 * parts * world_size <= ALL_PARTS:
        parts *= 2
    return parts


def width_for(until_ns: int, parts: int) -> int:
    """The width of one of at most so many parts."""
    width_ns = FIRST_WIDTH_NS
    while until_ns > parts * width_ns:
        width_ns *= 2
    return width_ns


class Samples:
    """Of one device. Rows are ``FIELDS``; the sample at place p belongs to the instant p x ``width_ns``."""

    __slots__ = ("_most", "columns", "width_ns")

    def __init__(self, parts: int) -> None:
        self._most = 2 * parts
        """More than are shown: what is simulated ahead of time and taken back must not decide the width."""
        self.width_ns = FIRST_WIDTH_NS
        self.columns = [array("q") for _ in FIELDS]

    def copy(self) -> Samples:
        made = copy(self)
        made.columns = [column[:] for column in self.columns]
        return made

    def make_room(self, until_ns: int) -> int:
        """The width with which samples until this instant fit."""
        while until_ns > self._most * self.width_ns:
            self.width_ns *= 2
            for column in self.columns:
                column[:] = column[::2]
        return self.width_ns

    def put(self, place: int, figures: Sequence[int]) -> None:
        """`place`: at most one behind the last."""
        if place < len(self.columns[0]):
            for column, figure in zip(self.columns, figures, strict=True):
                column[place] = figure
        else:
            for column, figure in zip(self.columns, figures, strict=True):
                column.append(figure)


@dataclass(frozen=True, slots=True, eq=False)
class Activity:
    width_ns: int
    until_ns: int
    ranks: Sequence[NDArray[np.int64]]
    """Of each rank, by field and instant: the accounts of all its devices at 0, width, 2 x width ... and `until_ns`."""
    devices: Sequence[int]
    """How many GPUs each rank has used."""


def at_instants(samples: Samples, width_ns: int, until_ns: int, final: Sequence[int]) -> NDArray[np.int64]:
    """The figures at the multiples of this width before `until_ns`, to which samples reach, and the `final` ones."""
    places = -(-until_ns // width_ns)
    found = np.empty((len(FIELDS), places + 1), np.int64)
    found[:, places] = final
    for row, column in enumerate(samples.columns):
        found[row, :places] = np.frombuffer(column, np.int64)[:: width_ns // samples.width_ns][:places]
    return found
