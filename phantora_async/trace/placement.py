"""Places the kernels of a segment in virtual time, given its start, its rates and its end.

Virtual time knows a segment as a whole. Its kernels share its work in proportion to their durations; each starts when
the one before is done and it has been launched, as far as the segment's end leaves room.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Launch(NamedTuple):
    at_ns: int
    for_ns: int
    """The time that it takes undisturbed."""


class Rate(NamedTuple):
    """The units of work a nanosecond from an instant on."""

    at_ns: int
    rate: int


def place(launches: Sequence[Launch], work: int, rates: Sequence[Rate], end_ns: int) -> list[tuple[int, int]]:
    """The (start, end) of each launch. `work`: the units of the whole segment; `rates`: from its start on, in order."""
    durations = _durations([launch.for_ns for launch in launches], work, rates, end_ns)
    placed: list[tuple[int, int]] = []
    free_ns = rates[0].at_ns
    for launch, for_ns in zip(launches, durations, strict=True):
        start_ns = max(free_ns, launch.at_ns)
        free_ns = start_ns + for_ns
        placed.append((start_ns, free_ns))
    latest_ns = end_ns
    for place in range(len(placed) - 1, -1, -1):
        start_ns, stop_ns = placed[place]
        if stop_ns <= latest_ns:
            break
        latest_ns -= stop_ns - start_ns
        placed[place] = latest_ns, latest_ns + stop_ns - start_ns
    return placed


def _durations(solo_ns: Sequence[int], work: int, rates: Sequence[Rate], end_ns: int) -> list[int]:
    """The time that each kernel took, from the instants at which its part of the work was begun and done."""
    total_ns = sum(solo_ns)
    if not total_ns or not work:
        return [0] * len(solo_ns)
    done_at, place, done, reached = [rates[0].at_ns], 0, 0, 0
    for for_ns in solo_ns:
        reached += for_ns
        needed = -(-work * reached // total_ns)
        while place + 1 < len(rates):
            span = rates[place].rate * (rates[place + 1].at_ns - rates[place].at_ns)
            if done + span >= needed:
                break
            done += span
            place += 1
        at_ns, rate = rates[place]
        done_at.append(min(end_ns, at_ns - (-(needed - done) // rate)) if rate else end_ns)
    return [later - earlier for earlier, later in pairwise(done_at)]
