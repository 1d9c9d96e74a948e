"""A network that does not change: its links, its endpoints, and the routes between them."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from netsim.errors import TopologyError
from netsim.topology.congestion import Congestion
from netsim.topology.links import Link, LinkPath
from netsim.units import rate_from_gbps, whole


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The facts that the planner of collectives needs about a server. All servers of a topology are alike."""

    kind: str = "host"
    gpus: int = 1
    nics: int = 0
    nvls: bool = False
    nic_gbps: float = 0.0
    gpu_gbps: float = 0.0
    usable_nics: tuple[int, ...] = ()
    nvlink: bool = False
    """True if GPUs of a server reach each other over NVLink."""
    through_host: bool = False
    """True if GPUs of a server exchange data through the host's memory."""
    amd: bool = False
    """True if its processors are AMD's: NCCL counts with slower proxies."""
    arm: bool = False
    """True if its processors are Arm's: NCCL counts with other rates of trees there."""
    plugin_us: float = 0.0
    """The latency in us that NCCL's network plugin declares: NCCL adds it to a hop between servers when it chooses."""
    tuner: str = "nccl"
    """The name of a provider's tuner, which chooses in NCCL's place; nccl: NCCL chooses."""


@dataclass(frozen=True, slots=True)
class TrafficRules:
    """The parts of the described network that may be used, and how. The defaults allow everything."""

    nics: tuple[int, ...] | None = None
    """The NICs of each server that are used; None: all."""
    cross_nic: bool = False
    """True: a message leaves by the sender's own NIC. False: by the NIC on the receiver's rail."""
    pxn: bool = True
    """False: a GPU reaches another rail's NIC over PCIe, not over NVLink and that rail's GPU."""
    p2p: bool = True
    """False: GPUs of a server exchange data through the host's memory."""
    nvls: bool = True
    """False: NVLink multicast is off."""


class Router(Protocol):
    """Finds all equally good routes from one endpoint to another, in an order that never changes."""

    def routes(self, src: int, dst: int) -> Sequence[LinkPath]:
        """The link ids of each candidate path; empty if there is none."""
        ...


def ecmp(src: int, dst: int, routes: int) -> int:
    """The number of the route, of ``routes`` equal ones, that a pair of endpoints uses: CRC-32 of ``"src-dst"`` modulo
    their number.
    """
    return zlib.crc32(f"{src}-{dst}".encode()) % routes


def _one_of(routes: Sequence[LinkPath], src: int, dst: int) -> LinkPath:
    return routes[ecmp(src, dst, len(routes))] if len(routes) > 1 else routes[0]


class Topology:
    """A network that does not change: directed links, endpoints numbered from 0, routes."""

    def __init__(
        self,
        links: Sequence[Link],
        endpoints: Sequence[str],
        router: Router,
        server: ServerFacts | None = None,
        kind: str = "graph",
        congestion: Congestion | None = None,
    ) -> None:
        self.links: tuple[Link, ...] = tuple(links)
        self.endpoints: tuple[str, ...] = tuple(endpoints)
        self.server = server or ServerFacts()
        self.kind = kind
        self.congestion = congestion
        """The rules of queues at links; None: flows are fluid, and share links fairly at every instant."""
        self._router = router
        self.rates = array("q", [rate_from_gbps(link.gbps) for link in self.links])
        """Capacities in rate units."""
        self._routes: dict[tuple[int, int], tuple[LinkPath, ...]] = {}

    @cached_property
    def _ids(self) -> dict[str, int]:
        """The links' ids by name; only those who name a link, in a fault for example, ask for one."""
        return {link.name: i for i, link in enumerate(self.links)}

    @property
    def servers(self) -> int:
        """The number of servers."""
        return len(self.endpoints) // self.server.gpus

    def gpu(self, server: int, index: int) -> int:
        """The endpoint id of a GPU. Raises TopologyError if there is no such server or GPU."""
        server, index = whole(server, "server"), whole(index, "GPU")
        if not (0 <= server < self.servers and 0 <= index < self.server.gpus):
            raise TopologyError(f"no GPU {index} in server {server}: {self.servers} servers of {self.server.gpus} GPUs")
        return server * self.server.gpus + index

    def server_of(self, endpoint: int) -> int:
        """The server an endpoint belongs to."""
        self._check(endpoint)
        return endpoint // self.server.gpus

    def link_id(self, name: str) -> int:
        """The id of a link by name. Raises TopologyError if it is unknown."""
        if not isinstance(name, str) or name not in self._ids:
            raise TopologyError(f"unknown link {name!r}")
        return self._ids[name]

    def routes(self, src: int, dst: int) -> tuple[LinkPath, ...]:
        """All equally good routes. Raises TopologyError for an unknown endpoint or an unreachable pair."""
        found = self._routes.get((src, dst))
        if found is None:
            self._check(src)
            self._check(dst)
            found = self._routes[src, dst] = self._found(src, dst)
        return found

    def route(self, src: int, dst: int) -> LinkPath:
        """The route that deterministic ECMP gives this pair."""
        return _one_of(self.routes(src, dst), src, dst)

    def route_once(self, src: int, dst: int) -> LinkPath:
        """Does ``route`` for two of the endpoints, and remembers nothing: of thousands of members nobody asks again."""
        return _one_of(self._found(src, dst), src, dst)

    def _found(self, src: int, dst: int) -> tuple[LinkPath, ...]:
        found = ((),) if src == dst else tuple(self._router.routes(src, dst))
        if not found:
            raise TopologyError(f"{self.endpoints[dst]} cannot be reached from {self.endpoints[src]}")
        return found

    def latency_ns(self, path: Sequence[int]) -> int:
        """The sum of the links' latencies."""
        return sum(self.links[link].latency_ns for link in path)

    def describe(self) -> dict[str, Any]:
        """A description for reports, ready for JSON: kind, endpoints and links with capacity and latency."""
        return {
            "kind": self.kind,
            "servers": self.servers,
            "gpus_per_server": self.server.gpus,
            "endpoints": list(self.endpoints),
            "links": [{"name": x.name, "gbps": x.gbps, "latency_ns": x.latency_ns} for x in self.links],
        }

    def _check(self, endpoint: int) -> None:
        if not 0 <= whole(endpoint, "endpoint") < len(self.endpoints):
            raise TopologyError(f"unknown endpoint {endpoint}: there are {len(self.endpoints)}")
