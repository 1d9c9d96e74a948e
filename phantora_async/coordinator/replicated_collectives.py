"""Collectives that run at the same instants as one that is simulated, because their members share timelines.

Those that cross servers move their data in the network, too: they may share links. Those that share equally many links
of each kind with others are joined into one flow that has the links of all, because they all move at the same rate. So
the number of flows does not grow with the number of replicas. Collectives within a server move their data once for all
servers that have them at the same GPUs, since they take as long there. What their links carry is added up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from emu.contract.records import NcclKind
from netsim import Group, Topology
from netsim.collectives import Plan, between
from phantora_async.errors import NotFoldable
from phantora_async.virtual_time.facts import Collective

Planner = Callable[[Collective, int], Plan]
"""Computes the plan of the collective whose ranks are larger by the given offset."""
Ends = Callable[[Collective, int], tuple[int, ...]]
"""Computes the endpoints of the members of the collective whose ranks are larger by the given offset."""
Links = tuple[tuple[int, int], ...]
"""The numbers of links, each with the number of hops that it carries."""


DIFFERING = "collectives of replicas that were simulated as one took longer in some than in others"
"""The text of the warning that the simulation itself adds to a report, so that a replay makes its own."""


class _Together(NamedTuple):
    """Groups of collectives that move their data together."""

    own: Sequence[tuple[int, int]]
    """The links of the collective that stands for them: kept, so that no other object gets their identity."""
    flows: tuple[Links, ...]
    """The links of each set of collectives that move at one rate."""


class ReplicatedCollectives:
    def __init__(self, places: Sequence[tuple[int, int]], plan: Planner, ends: Ends, topology: Topology) -> None:
        """`places`: for each rank, the server of the network that its GPU belongs to, and the GPU's number there."""
        self._places = places
        self._plan = plan
        self._ends = ends
        self._topology = topology
        self._moving: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._links: dict[tuple[object, ...], Links] = {}
        """The links of all groups that have these members and these links."""
        self._together: dict[tuple[object, ...], _Together | None] = {}
        """The groups that move together, by members and identity of a group's links; None: they do not all move the
        same data.
        """
        self.must_be_alike = False
        """True if ``note`` raises NotFoldable for collectives that are not alike."""
        self.apart = 0
        """The number of collectives that were complete at other instants than those which stand for them."""
        self.most_apart_ns = 0

    def moving(self, collective: Collective) -> tuple[int, ...]:
        """The offsets of the collectives that move data in the network, beginning with 0: see
        ``Collective.offsets``.
        """
        key = _members(collective)
        known = self._moving.get(key)
        if known is None:
            known = self._moving[key] = self._different(collective)
        return known

    def _different(self, collective: Collective) -> tuple[int, ...]:
        moving: list[int] = []
        within: dict[int, dict[int, tuple[int, ...]]] = {}
        """The offsets of the collectives that lie in each server, each with its GPUs."""
        for offset in collective.offsets:
            servers, gpus = zip(*(self._places[rank + offset] for rank in collective.ranks), strict=True)
            if len(set(servers)) > 1:
                moving.append(offset)
            else:
                within.setdefault(servers[0], {})[offset] = gpus
        seen = set()
        for found in within.values():
            gpus_used = tuple(found.values())
            if gpus_used not in seen:
                seen.add(gpus_used)
                moving += found
        return tuple(sorted(moving, key=collective.offsets.index))

    def together(self, collective: Collective, plan: Plan) -> Sequence[Plan]:
        """The plans of the flows that move the data of all these collectives; none if each must have its own flow.
        `plan`: the plan of the one that stands for them.
        """
        if len(plan.groups) != 1 or not 1 < len(self.moving(collective)) == len(collective.offsets):
            return ()
        (group,) = plan.groups
        key = (*_members(collective), collective.root, id(group.links))
        if key not in self._together:
            self._together[key] = self._divided(collective, group)
        together = self._together[key]
        flows = () if together is None else together.flows
        return [replace(plan, groups=(replace(group, links=links),)) for links in flows]

    def _divided(self, collective: Collective, group: Group) -> _Together | None:
        parts = []
        for offset in self.moving(collective):
            if collective.op == NcclKind.SEND:
                sender, receiver = self._ends(collective, offset)
                parts.append(between(sender, receiver, self._topology))
                continue
            others = self._plan(collective, offset).groups
            if len(others) != 1 or replace(others[0], links=()) != replace(group, links=()):
                return None
            parts.append(tuple(others[0].links))
        load = _sum(parts)
        links = self._topology.links
        alike: dict[tuple[object, ...], list[Links]] = {}
        for part in parts:
            shares = sorted((links[link].gbps / load[link], links[link].gbps, hops) for link, hops in part)
            # Other data on these links may still set them apart: to find that, each is a flow of its own.
            alike.setdefault((len(alike),) if self.must_be_alike else tuple(shares), []).append(part)
        flows = [tuple(sorted(_sum(of_one).items())) for of_one in alike.values()]
        return _Together(group.links, tuple(flows))

    def carrying(self, collective: Collective, plan: Plan) -> Plan:
        """The plan, with the links of all collectives that do not move data in the network added to it."""
        elsewhere = set(collective.offsets).difference(self.moving(collective))
        if not elsewhere or not plan.groups:
            return plan
        groups = []
        for number, group in enumerate(plan.groups):
            key = (*_members(collective), collective.root, group.links)
            links = self._links.get(key)
            if links is None:
                others = (self._plan(collective, offset).groups[number].links for offset in sorted(elsewhere))
                links = self._links[key] = (*group.links, *(link for other in others for link in other))
            groups.append(replace(group, links=links))
        return replace(plan, groups=tuple(groups))

    def note(self, done_ns: Sequence[int]) -> None:
        """Records when the collectives that moved their data were complete."""
        apart_ns = max(done_ns) - min(done_ns)
        if apart_ns and self.must_be_alike:
            failure = NotFoldable(f"collectives of replicas end {apart_ns / 1e3:,.1f} µs apart on this network")
            failure.needs_each = True
            raise failure
        self.apart += apart_ns > 0
        self.most_apart_ns = max(self.most_apart_ns, apart_ns)

    def differing(self) -> str:
        """The warning for the user about replicas that were simulated as one but differed; "" if they were alike."""
        if not self.apart:
            return ""
        return (
            f"--fold: {self.apart:,} {DIFFERING}, up to {self.most_apart_ns / 1e3:,.1f} µs; all were given the longest "
            "time; --replicas each simulates each replica"
        )


def _members(collective: Collective) -> tuple[object, ...]:
    return collective.comm.id, collective.ranks if collective.ranks is not collective.comm.members else ()


def _sum(parts: Iterable[Links]) -> Counter[int]:
    """Counts for each link how many hops of all of them it carries."""
    load: Counter[int] = Counter()
    for part in parts:
        for link, hops in part:
            load[link] += hops
    return load
