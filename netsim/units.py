"""The fixed-point numbers in which the simulator computes.

All arithmetic of the timeline is integer, so sums do not depend on the order in which they are made and every
answer is a pure function of the facts. One *rate unit* is 2**-48 byte/ns; one *tick* is 2**-12 ns. A flow's
remaining bytes are counted in rate units x ticks and are exact; shares round down to a rate unit, completions round
to the nearest tick.
"""

from __future__ import annotations

from operator import index
from typing import Any, Final

from netsim.errors import FlowError

RATE_BITS: Final = 48
TICK_BITS: Final = 12
TICKS_PER_NS: Final = 1 << TICK_BITS
BYTE_UNITS: Final = 1 << (RATE_BITS + TICK_BITS)

MAX_GBPS: Final = 8 * (1 << 13)
"""The largest capacity of one link in Gb/s (65,536): rates stay below 2**61 units."""

MIN_GBPS: Final = 1e-6
"""The smallest capacity of a link that is not down: a kilobit per second."""

MAX_BYTES: Final = 1 << 58
"""A flow has fewer bytes."""

MAX_NS: Final = 1 << 50
"""The largest instant or duration in ns (13 days): ticks stay below 2**62."""

MAX_LATENCY_NS: Final = 10**12
"""The largest latency of a link in ns (17 minutes)."""


def whole(value: Any, name: str) -> int:
    """An integer of any type, numpy's among them, as int. FlowError for anything else, such as 1.0."""
    try:
        return index(value)
    except TypeError:
        raise FlowError(f"{name}: expected a whole number, not {value!r}") from None


def rate_from_gbps(gbps: float) -> int:
    """The capacity in rate units of a link of ``gbps`` gigabits per second (8 Gb/s = 1 byte/ns), to the nearest
    unit.
    """
    numerator, denominator = float(gbps).as_integer_ratio()
    return (2 * (numerator << RATE_BITS) + 8 * denominator) // (16 * denominator)


def gbps_from_rate(rate: int) -> float:
    """The Gb/s of a rate in rate units."""
    return rate * 8 / (1 << RATE_BITS)


def ticks_from_ns(at_ns: int) -> int:
    """The ticks of a whole number of nanoseconds; exact."""
    return at_ns << TICK_BITS


def ns_from_ticks(ticks: int) -> int:
    """The first whole nanosecond that is not before ``ticks``: how every instant leaves the simulator."""
    return -((-ticks) >> TICK_BITS)
