"""Broadcasts or reductions of one NCCL group, one from each rank, whose data moves as one flow of the network.

DDP's constructor gathers sizes with as many broadcasts as there are ranks. Each of them crosses all links of the same
rings but the few at which its own is open. If they begin together, and nothing else moves, they all have the same rate:
one flow with the links of all ends when they end. So neither memory nor time grows with the square of the ranks.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np

from netsim import Group, LinksLess, Topology
from netsim.units import rate_from_gbps
from phantora_async.virtual_time.facts import Collective

MOST_WEIGHT = 1 << 20
"""netsim takes smaller weights of a link."""


@dataclass(slots=True)
class Joined:
    """Collectives that begin together and may be one flow."""

    start_ns: int
    groups: dict[Collective, Group] = field(default_factory=dict)
    flow: int | None = None
    """The flow that moves the data of all; None: the network has not been told of them."""

    def fits(self, group: Group, start_ns: int) -> bool:
        """True if the group's data moves at the same instants as theirs, over the same links but a few."""
        mine = next(iter(self.groups.values()))
        return (
            start_ns == self.start_ns
            and _shared(group) is _shared(mine)
            and replace(group, links=()) == replace(mine, links=())
        )


def may_join(group: Group) -> bool:
    """True if other collectives may have the same links but a few."""
    return isinstance(group.links, LinksLess)


def _shared(group: Group) -> object:
    return group.links.shared if isinstance(group.links, LinksLess) else None


def as_one(groups: Collection[Group], topology: Topology) -> Group | None:
    """One group that ends when each of these does, if they begin together and nothing else moves; None: they may end at
    different instants. All of them fit each other.

    The links that are full first give their level to all groups that cross one of them. If there are more such links
    than a group can lack, or the groups' own limit is lower, these are all groups.
    """
    some = next(iter(groups))
    assert isinstance(some.links, LinksLess)
    links, hops = np.array(some.links.shared, np.int64).T
    load, most_lacking = hops * len(groups), 0
    for group in groups:
        assert isinstance(group.links, LinksLess)
        less = np.array(group.links.less, np.int64).reshape(-1, 2)
        places = np.searchsorted(links, less[:, 0])
        np.subtract.at(load, places, less[:, 1])
        most_lacking = max(most_lacking, len(less))
    if load.min() < 0 or load.max() >= MOST_WEIGHT:
        return None
    links, load = links[load > 0], load[load > 0]
    if not len(links):
        return None
    levels = np.frombuffer(topology.rates, np.int64)[links] // load
    least = int(levels.min())
    limited = some.cap_gbps is not None and rate_from_gbps(some.cap_gbps) <= least
    if least == 0 or not (limited or np.count_nonzero(levels == least) > most_lacking):
        return None
    return replace(some, links=tuple(zip(links.tolist(), load.tolist(), strict=True)))
