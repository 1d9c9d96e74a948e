"""Finds how faults change the capacities of links, in order of time. Flaps go on for ever: changes are found when asked
for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import count
from typing import NamedTuple

import netsim
from phantora_async.faults.kinds import DeadGpu, DeadNic, DeadNode, Fault, FlappingLink, SlowLink
from phantora_async.faults.pace import FULL_PACE, NEVER

_Fault = SlowLink | FlappingLink | DeadGpu | DeadNode | DeadNic


class Change(NamedTuple):
    at_ns: int
    link: int
    """The link's number in the topology."""
    gbps: float
    """The link's capacity from that instant on."""


class LinkChanges:
    """The changes of links. ``first_ns`` is the instant of the change that ``take`` returns next; NEVER: there is
    none.
    """

    def __init__(
        self, faults: Sequence[Fault], topology: netsim.Topology, servers: Sequence[int], since_ns: int = 0
    ) -> None:
        """`servers`: the number of GPUs in use on each server. Instants are counted from `since_ns` on. Earlier changes
        come first, at 0.
        """
        of_links: dict[int, list[_Fault]] = {}
        for fault in faults:
            if isinstance(fault, _Fault):
                for link in links_of(fault, topology, servers):
                    of_links.setdefault(link, []).append(fault)
        self._changes = merge(
            *(_changes(link, topology.links[link].gbps, mine, since_ns) for link, mine in of_links.items())
        )
        mine = [fault for faults in of_links.values() for fault in faults]
        ends = [at_ns for one in mine for at_ns in (one.period.from_ns, one.period.until_ns) if at_ns < NEVER]
        cycles = [one.every_ns for one in mine if isinstance(one, FlappingLink)]
        self.settled_ns = max(ends, default=0) - since_ns
        """The instant from which on every link repeats itself within ``cycle_ns``."""
        self.cycle_ns = max(cycles, default=0)
        self._first = next(self._changes, None)

    @property
    def first_ns(self) -> int:
        return NEVER if self._first is None else self._first.at_ns

    def take(self) -> Change:
        change, self._first = self._first, next(self._changes, None)
        assert change is not None, "there is no change"
        return change


def links_of(fault: _Fault, topology: netsim.Topology, servers: Sequence[int]) -> Sequence[int]:
    """The numbers of the links that the fault changes. Raises TopologyError if it names one that the network does not
    have; a GPU or a server of a network that does not name its links so has none.
    """
    match fault:
        case SlowLink(link=name) | FlappingLink(link=name) | DeadNic(nic=name):
            return netsim.find_links(topology.links, name)
        case DeadNode(server=server):
            owner = f"node{server:03}/"
        case DeadGpu(rank=rank):
            server = 0
            while rank >= servers[server]:
                rank -= servers[server]
                server += 1
            owner = f"node{server:03}/gpu{rank}:"
    return [number for number, link in enumerate(topology.links) if link.name.startswith(owner)]


def _changes(link: int, gbps: float, faults: Sequence[_Fault], since_ns: int) -> Iterator[Change]:
    share_before = FULL_PACE
    began = False
    for at_ns in merge(*(_instants(fault) for fault in faults)):
        if at_ns <= since_ns:
            continue
        if not began:
            began = True
            if (share := _share(faults, since_ns)) != share_before:
                share_before = share
                yield Change(0, link, gbps * share / FULL_PACE)
        share = _share(faults, at_ns)
        if share != share_before:
            share_before = share
            yield Change(at_ns - since_ns, link, gbps * share / FULL_PACE)
    if not began and (share := _share(faults, since_ns)) != share_before:
        yield Change(0, link, gbps * share / FULL_PACE)


def _instants(fault: _Fault) -> Iterator[int]:
    """Yields the instants at which the fault's effect may change, in order."""
    period = fault.period
    if not isinstance(fault, FlappingLink):
        yield period.from_ns
    else:
        for down_ns in count(period.from_ns, fault.every_ns):
            for at_ns in (down_ns, down_ns + fault.down_ns):
                if at_ns >= period.until_ns:
                    yield period.until_ns
                    return
                yield at_ns
    if period.until_ns < NEVER:
        yield period.until_ns


def _share(faults: Sequence[_Fault], at_ns: int) -> int:
    share = FULL_PACE
    for fault in faults:
        if not fault.period.from_ns <= at_ns < fault.period.until_ns:
            continue
        if isinstance(fault, SlowLink):
            share = share * fault.share // FULL_PACE
        elif not isinstance(fault, FlappingLink) or (at_ns - fault.period.from_ns) % fault.every_ns < fault.down_ns:
            share = 0
    return share
