"""Samples what each GPU does in equal parts of virtual time: for pictures of ranks over time.

The engine keeps the accounts of a device at the multiples of a width, which doubles when virtual time has become too
long for the number of samples. What is simulated again after a rollback is written again.
"""

from __future__ import annotations

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


def accounts_at(samples: NDArray[np.int64], until_ns: int, width_ns: int, final: Sequence[int]) -> NDArray[np.int64]:
    """The accounts at the multiples of this width before `until_ns`, followed by the `final` ones. `samples`: those at
    these multiples, by sample and account.
    """
    places = -(-until_ns // width_ns)
    found = np.empty((ACCOUNTS, places + 1), np.int64)
    found[:, places] = final
    found[:, :places] = samples[:places].T
    return found


def memory_at(changes: NDArray[np.int64], width_ns: int, until_ns: int) -> NDArray[np.int64]:
    """The peaks of all devices together, at the same instants. `changes`: rows of instant, device, allocated and
    reserved, in the order of their instants.
    """
    found = np.zeros((2, -(-until_ns // width_ns) + 1), np.int64)
    before: dict[int, NDArray[np.int64]] = {}
    for row in changes:
        device, peaks = int(row[1]), row[2:4, None]
        # A peak is the device's until its next change.
        found[:, -(-row[0] // width_ns) :] += peaks - before.get(device, 0)
        before[device] = peaks
    return found
