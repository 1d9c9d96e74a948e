"""Links, endpoints and the routes between them."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from netsim.errors import SpecError, TopologyError
from netsim.groups import Group
from netsim.spec import FieldError, Table, locate, read_toml
from netsim.units import MAX_GBPS, rate_from_gbps

Path_ = tuple[int, ...]

ROUTINGS = ("ecmp", "adaptive")
"""How a flow picks one of several equally good routes: by a hash of its endpoints, or the least loaded at its start."""


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a cable, port or bus. ``name`` is ``<owner>:<port>``, for example ``node000/gpu3:out``."""

    name: str
    gbps: float
    latency_ns: int = 0


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a collective's planner asks about a server: all servers of a topology are alike."""

    kind: str = "host"
    gpus: int = 1
    nics: int = 0
    nvls: bool = False
    nic_gbps: float = 0.0
    gpu_gbps: float = 0.0


class Router(Protocol):
    """Finds routes: every equally good way from one endpoint to another, in an order that never changes."""

    def routes(self, src: int, dst: int) -> Sequence[Path_]:
        """Link ids of each candidate path; empty if there is none."""
        ...


@dataclass(slots=True)
class LinkTable:
    """Collects links while a topology is built."""

    links: list[Link] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, gbps: float, latency_ns: int = 0) -> int:
        """Id of a new link; SpecError if the name is taken or the figures are impossible."""
        if name in self.ids:
            raise SpecError(f"link {name}: declared twice")
        if not 0 < gbps <= MAX_GBPS:
            raise SpecError(f"link {name}: capacity {gbps} Gb/s is not in (0, {MAX_GBPS}]")
        if latency_ns < 0:
            raise SpecError(f"link {name}: latency {latency_ns} ns is negative")
        self.ids[name] = len(self.links)
        self.links.append(Link(name, gbps, latency_ns))
        return self.ids[name]


def ecmp(src: int, dst: int, ways: int) -> int:
    """Which of ``ways`` equal routes a pair of endpoints uses: CRC-32 of ``"src-dst"`` modulo the number of ways."""
    return zlib.crc32(f"{src}-{dst}".encode()) % ways


class Topology:
    """A network that does not change: directed links, endpoints numbered from 0, routes."""

    def __init__(
        self,
        links: Sequence[Link],
        endpoints: Sequence[str],
        router: Router,
        server: ServerFacts | None = None,
        kind: str = "graph",
        routing: str = "ecmp",
    ) -> None:
        self.links: tuple[Link, ...] = tuple(links)
        self.endpoints: tuple[str, ...] = tuple(endpoints)
        self.server = server or ServerFacts()
        self.kind = kind
        self.routing = routing
        self._router = router
        self.rates = array("q", [rate_from_gbps(link.gbps) for link in self.links])
        """Capacities in rate units."""
        self._ids = {link.name: i for i, link in enumerate(self.links)}
        self._routes: dict[tuple[int, int], tuple[Path_, ...]] = {}

    @property
    def routing(self) -> str:
        """One of ``ROUTINGS``; SpecError when set to anything else."""
        return self._routing

    @routing.setter
    def routing(self, routing: str) -> None:
        if routing not in ROUTINGS:
            raise SpecError(f"routing: {routing!r} is not one of {', '.join(ROUTINGS)}")
        self._routing = routing

    @property
    def servers(self) -> int:
        """Number of servers."""
        return len(self.endpoints) // self.server.gpus

    def gpu(self, server: int, index: int) -> int:
        """Endpoint id of a GPU; TopologyError if there is no such server or GPU."""
        if not (0 <= server < self.servers and 0 <= index < self.server.gpus):
            raise TopologyError(f"no GPU {index} in server {server}: {self.servers} servers of {self.server.gpus} GPUs")
        return server * self.server.gpus + index

    def server_of(self, endpoint: int) -> int:
        """The server an endpoint belongs to."""
        self._check(endpoint)
        return endpoint // self.server.gpus

    def link_id(self, name: str) -> int:
        """Id of a link by name; TopologyError if unknown."""
        if name not in self._ids:
            raise TopologyError(f"unknown link {name!r}")
        return self._ids[name]

    def routes(self, src: int, dst: int) -> tuple[Path_, ...]:
        """All equally good routes; TopologyError for an unknown endpoint or an unreachable pair."""
        found = self._routes.get((src, dst))
        if found is None:
            self._check(src)
            self._check(dst)
            found = ((),) if src == dst else tuple(self._router.routes(src, dst))
            if not found:
                raise TopologyError(f"{self.endpoints[dst]} cannot be reached from {self.endpoints[src]}")
            self._routes[src, dst] = found
        return found

    def route(self, src: int, dst: int) -> Path_:
        """The route that deterministic ECMP gives this pair."""
        ways = self.routes(src, dst)
        return ways[ecmp(src, dst, len(ways))] if len(ways) > 1 else ways[0]

    def latency_ns(self, path: Sequence[int]) -> int:
        """Sum of the links' latencies."""
        return sum(self.links[link].latency_ns for link in path)

    def flow(self, src: int, dst: int, nbytes: int) -> Group:
        """A plain flow along the pair's route, with the path's latency."""
        path = self.route(src, dst)
        return Group(nbytes, tuple((link, 1) for link in path), latency_ns=self.latency_ns(path))

    def describe(self) -> dict[str, Any]:
        """JSON-ready description for reports: kind, endpoints and links with capacity and latency."""
        return {
            "kind": self.kind,
            "routing": self.routing,
            "servers": self.servers,
            "gpus_per_server": self.server.gpus,
            "endpoints": list(self.endpoints),
            "links": [{"name": x.name, "gbps": x.gbps, "latency_ns": x.latency_ns} for x in self.links],
        }

    def _check(self, endpoint: int) -> None:
        if not 0 <= endpoint < len(self.endpoints):
            raise TopologyError(f"unknown endpoint {endpoint}: there are {len(self.endpoints)}")


Builder = Callable[[Table, int], Topology]


def build(spec: Mapping[str, Any], servers: int = 1) -> Topology:
    """The topology that a cluster file's ``[network]`` table describes, with ``servers`` servers.

    Raises SpecError naming the field that is wrong. The keys are documented in docs/netsim.md.
    """
    from netsim import builders

    if servers < 1:
        raise SpecError(f"a cluster needs at least one server, not {servers}")
    return builders.from_table(Table(spec, "network"), servers)


def load(path: str | Path, servers: int = 1) -> Topology:
    """``build`` from a TOML file that has a ``[network]`` table; errors name the line as well."""
    path = Path(path)
    tables = read_toml(path)
    try:
        if "network" not in tables:
            raise FieldError("network", "missing")
        return build(tables["network"], servers)
    except FieldError as error:
        raise locate(error, path) from error
