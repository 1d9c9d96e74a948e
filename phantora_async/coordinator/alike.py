"""Collectives that run at the same instants as one that is simulated, because their members share timelines.

Those that cross servers move their data in the network, too: they may share links. So do those within a server, but
once for all servers that have them at the same GPUs: they take as long there. What their links carry is added up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from netsim.collectives import Plan
from phantora_async.virtual_time.facts import Collective

Planner = Callable[[Collective, int], Plan]
"""The plan of a collective whose ranks are larger by so much."""


class AlikeCollectives:
    def __init__(self, places: Sequence[tuple[int, int]], plan: Planner) -> None:
        """`places`: by rank, the server of the network that its GPU belongs to, and the GPU's number there."""
        self._places = places
        self._plan = plan
        self._moving: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._links: dict[tuple[object, ...], tuple[tuple[int, int], ...]] = {}
        """By members and links of a group: those of all such groups."""
        self.apart = 0
        """Collectives that were complete at other instants than those which stand for them."""
        self.most_apart_ns = 0

    def moving(self, collective: Collective) -> tuple[int, ...]:
        """Offsets of those that move data in the network, beginning with 0: see ``Collective.offsets``."""
        key = _members(collective)
        known = self._moving.get(key)
        if known is None:
            known = self._moving[key] = self._different(collective)
        return known

    def _different(self, collective: Collective) -> tuple[int, ...]:
        moving: list[int] = []
        within: dict[int, dict[int, tuple[int, ...]]] = {}
        """By server: the offsets of collectives that lie in it, each with its GPUs."""
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

    def carrying(self, collective: Collective, plan: Plan) -> Plan:
        """The plan, with the links of all that do not move data in the network."""
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
        """When those that moved their data were complete."""
        apart_ns = max(done_ns) - min(done_ns)
        self.apart += apart_ns > 0
        self.most_apart_ns = max(self.most_apart_ns, apart_ns)

    def differing(self) -> str:
        """What the user must know of replicas that were simulated as one, "" if they were alike."""
        if not self.apart:
            return ""
        return (
            f"--fold: {self.apart:,} collectives of replicas that were simulated as one took longer in some than in "
            f"others, up to {self.most_apart_ns / 1e3:,.1f} µs; all were given the longest time; --replicas each "
            "simulates each replica"
        )


def _members(collective: Collective) -> tuple[object, ...]:
    return collective.comm.id, collective.ranks if collective.ranks is not collective.comm.members else ()
