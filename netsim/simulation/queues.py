"""Flows over links with queues: what the core with queues has to know of a topology and of a flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sortedcontainers import SortedDict

from netsim.native import core
from netsim.native.trains import SPAN_NS, TrainCore, TrainRules
from netsim.simulation.groups import Group
from netsim.topology import LinkPath, Topology
from netsim.topology.congestion import Congestion
from netsim.topology.ends import reverse_links
from netsim.units import TICKS_PER_NS, rate_from_gbps, ticks_from_ns

LEAST_GBPS = 1.0
"""DCQCN does not cut a sender's rate below this."""
LINKS_OF_A_WAY = 4
"""A collective's hop between servers crosses about this many links: it hears of a mark after their latency and back."""


GAP, MOST_ORDER = 1 << 20, 1 << 62
"""Keys that come one after the other are numbered so far apart."""


class Queues:
    """The core with queues of one network."""

    def __init__(self, topology: Topology, congestion: Congestion) -> None:
        self._links = topology.links
        self._orders: SortedDict[Any, int] = SortedDict()
        self._flows: dict[Any, int] = {}
        self._ports = {i for i, link in enumerate(topology.links) if _is_port(link.name)}
        rules = TrainRules(
            packet_nbytes=congestion.packet_nbytes,
            ack_nbytes=congestion.ack_nbytes,
            marking=congestion.dcqcn,
            mark_from=_ticks(congestion.mark_from_us),
            mark_to=_ticks(congestion.mark_to_us),
            alpha_every=_ticks(congestion.alpha_every_us),
            cut_every=_ticks(congestion.cut_every_us),
            recover_every=_ticks(congestion.recover_every_us),
            mark_most=congestion.mark_most,
            alpha_gain=congestion.alpha_gain,
            least_rate=rate_from_gbps(LEAST_GBPS),
        )
        latencies = [ticks_from_ns(link.latency_ns) for link in topology.links]
        self.core = TrainCore(topology.rates, latencies, reverse_links(topology.links), ticks_from_ns(SPAN_NS), rules)

    def wire_ns(self, path: Sequence[int]) -> int:
        """The latency of a path's links, which the core adds as bytes pass them."""
        return sum(self._links[link].latency_ns for link in path)

    def _order(self, key: Any) -> int:
        """A number for the key, between those of the keys before and after it."""
        place = self._orders.bisect_left(key)
        before = self._orders.peekitem(place - 1)[1] if place else 0
        after = before + 2 * GAP if place == len(self._orders) else self._orders.peekitem(place)[1]
        if after - before < 2 or after >= MOST_ORDER:
            numbers = self.core.renumber(GAP)
            for known in self._orders:
                self._orders[known] = numbers[self._flows[known]]
            return self._order(key)
        return (before + after) // 2

    def _put(self, key: Any, order: int, flow: int) -> int:
        self._orders[key] = order
        self._flows[key] = flow
        return flow

    def forget(self, key: Any) -> None:
        """The flow of this key is no more."""
        del self._orders[key], self._flows[key]

    def add(self, group: Group, start: int, cap: int | None, hops: core.Hops, key: Any) -> int:
        """Adds a group, which takes its links at once, or a flow along a path. Its links are checked."""
        if group.path and group.nbytes:
            path = tuple(link for link, _ in group.links)
            return self.send(path, start, group.nbytes, core.encode(tuple(group.links)), (), key, cap)
        latency_ns = max((self._links[link].latency_ns for link, _ in group.links), default=0)
        answer = ticks_from_ns(2 * LINKS_OF_A_WAY * latency_ns)
        order = self._order(key)
        return self._put(key, order, self.core.add_train(start, group.nbytes, cap, hops, (), order, None, answer))

    def send(
        self,
        path: LinkPath,
        start: int,
        nbytes: int,
        hops: core.Hops,
        path_from: Sequence[int],
        key: Any,
        cap: int | None = None,
    ) -> int:
        """Adds a flow along a path (the first one, if it takes others later)."""
        port = next((place for place, link in enumerate(path) if link in self._ports), 0)
        answer = ticks_from_ns(self.wire_ns(path))
        order = self._order(key)
        return self._put(key, order, self.core.add_train(start, nbytes, cap, hops, path_from, order, port, answer))


def _is_port(name: str) -> bool:
    """Is the link a network card's port to the fabric, from which a sender's packets leave?"""
    return "/nic" in name and name.endswith(":out")


def _ticks(us: float) -> int:
    return max(1, round(us * 1000 * TICKS_PER_NS))
