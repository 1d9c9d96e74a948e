"""Says how long NCCL takes to make communicators, before anything is sent on them.

Comes in: the members of each communicator with the number of their servers, in the order in which each rank makes its
own. Goes out: a range in seconds until all are made. What NCCL and PyTorch do one after the other is added up. The
first communicator of a process loads NCCL's kernels. Members send their addresses to a root and get those of their
neighbours, three times the data of all go around a ring of sockets, and each member searches the topology, orders the
rings and connects (NVIDIA/nccl v2.28.9, src/init.cc and src/bootstrap.cc). ``start.toml`` has the constants with their
sources. What programs do themselves (imports, data, compiling) is no part of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources

from formats.toml import read_toml
from netsim.errors import SpecError

RINGS = 3
"""The times that data goes around the ring: addresses, what each member is, and what each has found."""
RANKS_A_ROOT = 128
"""The ranks that share a root (PyTorch's TORCH_NCCL_RANKS_PER_ROOT)."""
BOTH_WAYS_SINCE = (2, 28)
"""The version since which data goes around the ring both ways at once, in half the hops."""


@dataclass(frozen=True, slots=True)
class Range:
    """A range in seconds, from the least to the most that was measured or published."""

    low: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def __mul__(self, times: float) -> Range:
        return Range(self.low * times, self.high * times)


@dataclass(frozen=True, slots=True)
class StartTimes:
    """The constants."""

    kernels: Range
    """Loading NCCL's kernels, in the first communicator of a process."""
    first: Range
    """The further time that the first communicator of a process takes: buffers of the host, NICs, the topology."""
    each: Range
    """A communicator, however many members it has: channels, proxies, connections in a server."""
    across: Range
    """The further time of connections between servers."""
    to_root: Range
    """One member's address, which a root receives and sends on."""
    hop: Range
    """One hop of the ring of sockets."""
    pair: Range
    """The loops over all pairs of members, for one pair."""


@dataclass(frozen=True, slots=True)
class Made:
    """A communicator that was made: the ranks of its members, and the number of servers that they are on."""

    members: Sequence[int]
    servers: int


@cache
def start_times() -> StartTimes:
    """The constants of ``start.toml``."""
    with resources.as_file(resources.files("netsim.collectives") / "start.toml") as path:
        _, table = read_toml(path, SpecError)
    return StartTimes(**{field.name: Range(*table[field.name]) for field in fields(StartTimes)})


def communicator_start(ranks: int, servers: int, first: bool, version: tuple[int, int]) -> Range:
    """The seconds from the call of its last member until a communicator is made. `first`: it is the first one of a
    member. `version`: NCCL's.
    """
    times = start_times()
    total = times.each
    if first:
        total += times.kernels + times.first
    if ranks > 1:
        hops = ranks // 2 if version >= BOTH_WAYS_SINCE else ranks - 1
        total += times.to_root * min(ranks, RANKS_A_ROOT) + times.hop * (RINGS * hops) + times.pair * ranks**2
    if servers > 1:
        total += times.across
    return total


def start_of_all(made: Iterable[Made], version: tuple[int, int]) -> Range:
    """The seconds until the last rank has its communicators, if all begin together: each communicator begins when its
    last member has those that it makes before. `made`: in an order that is each rank's own.
    """
    low: dict[int, float] = {}
    high: dict[int, float] = {}
    for one in made:
        first = any(rank not in low for rank in one.members)
        takes = communicator_start(len(one.members), one.servers, first, version)
        for until, more in ((low, takes.low), (high, takes.high)):
            done = max(until.get(rank, 0.0) for rank in one.members) + more
            until.update(dict.fromkeys(one.members, done))
    return Range(max(low.values(), default=0.0), max(high.values(), default=0.0))
