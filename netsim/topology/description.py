"""Builds a topology from a ``[network]`` table, or from a TOML file that has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from formats.toml import read_toml
from formats.values import shown
from netsim.errors import SpecError
from netsim.fields import FieldError, SpecTable
from netsim.topology import congestion, fabrics, graph, servers
from netsim.topology.fabrics import Fabric
from netsim.topology.links import LinkPath, LinkTable, read_latency_ns
from netsim.topology.servers import Server
from netsim.topology.topology import ServerFacts, Topology, TrafficRules
from netsim.units import whole

EVERYTHING = TrafficRules()
MOST_SERVERS = 100_000


def build(spec: Mapping[str, Any], servers: int = 1, rules: TrafficRules = EVERYTHING) -> Topology:
    """The topology that a cluster file's ``[network]`` table describes, with ``servers`` servers.

    ``rules`` limit its use. Raises SpecError naming the field that is wrong. Keys: docs/data/network-fields.md.
    """
    if not 1 <= whole(servers, "servers") <= MOST_SERVERS:
        raise SpecError(f"a cluster has 1 to {MOST_SERVERS:,} servers, not {shown(servers)}")
    return _from_table(SpecTable(spec, "network"), servers, rules)


def load(path: str | Path, servers: int = 1, rules: TrafficRules = EVERYTHING) -> Topology:
    """Does ``build`` for a TOML file that has a ``[network]`` table; errors name the line as well."""
    path = Path(path)
    source, tables = read_toml(path, SpecError)
    try:
        if "network" not in tables:
            raise FieldError("network", "missing")
        return build(tables["network"], servers, rules)
    except FieldError as error:
        raise SpecError(source.locate(error.field, error.problem)) from error
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from error


@dataclass(frozen=True, slots=True)
class ClusterRouter:
    """Finds the routes in a cluster of equal servers. From NVSwitch servers, traffic leaves on the rail of the
    receiver's NIC.
    """

    built: tuple[Server, ...]
    facts: ServerFacts
    nic_out: tuple[tuple[int, ...], ...] = ()
    nic_in: tuple[tuple[int, ...], ...] = ()
    fabric: Fabric | None = None
    cross_nic: bool = False
    nic_of: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The NIC of each GPU of a server. Routes of thousands of GPUs are asked for, so it is found once."""

    def __post_init__(self) -> None:
        gpus = range(self.facts.gpus) if self.facts.usable_nics else ()
        object.__setattr__(self, "nic_of", tuple(servers.nic_of(self.facts, gpu) for gpu in gpus))

    def routes(self, src: int, dst: int) -> Sequence[LinkPath]:
        gpus = self.facts.gpus
        s, d = src // gpus, dst // gpus
        a, b = src % gpus, dst % gpus
        if s == d:
            return (self.built[s].inside(a, b),)
        if self.fabric is None:
            return ()
        far = self.nic_of[b]
        rail = self.facts.kind == "nvswitch" and not self.cross_nic
        near = far if rail else self.nic_of[a]
        head = (*self.built[s].to_nic(a, near), self.nic_out[s][near])
        tail = (self.nic_in[d][far], *self.built[d].from_nic(far, b))
        return [(*head, *middle, *tail) for middle in self.fabric.between((s, near), (d, far))]


def _from_table(table: SpecTable, count: int, rules: TrafficRules) -> Topology:
    """The topology of ``count`` servers; SpecError (FieldError) for anything that does not fit."""
    table.text("routing", "ecmp", choices=("ecmp",))
    queues = congestion.read(table.table("congestion")) if "congestion" in table else None
    if "graph" in table:
        topology = graph.from_table(table.table("graph"))
        topology.congestion = queues
        table.end()
        return topology
    design = servers.read(table.table("server"), rules)
    links = LinkTable()
    names = [f"node{i:03d}" for i in range(count)]
    first = design.build(links, names[0])
    links.expect((count - 1) * len(links.links))
    built = (first, *(design.build(links, name) for name in names[1:]))
    kind, router = design.facts.kind, ClusterRouter(built, design.facts, cross_nic=rules.cross_nic)
    if "fabric" in table:
        fabric_table = SpecTable(table.value("fabric"), table.field("fabric"))  # one server has no use for its keys
        fabric_kind = fabric_table.text("kind", choices=fabrics.KINDS)
        if count > 1:
            kind = f"{kind} + {fabric_kind}"
            router = _joined(router, fabric_kind, fabric_table, links, names)
    elif count > 1:
        raise FieldError("network.fabric", f"missing: {count} servers need a fabric between them")
    table.end()
    endpoints = servers.gpu_names(names, design.facts.gpus)
    return Topology(links.links, endpoints, router, design.facts, kind, queues)


def _joined(
    router: ClusterRouter, kind: str, table: SpecTable, links: LinkTable, names: Sequence[str]
) -> ClusterRouter:
    """The servers with their NICs' ports and the fabric between them."""
    facts = router.facts
    if not facts.nics:
        raise FieldError("network.server.nics", f"{len(names)} servers need NICs to reach each other")
    latency_ns = read_latency_ns(table, "nic_latency_ns")
    nics = range(facts.nics)
    nic_out = tuple(tuple(links.add(f"{n}/nic{i}:out", facts.nic_gbps, latency_ns) for i in nics) for n in names)
    nic_in = tuple(tuple(links.add(f"{n}/nic{i}:in", facts.nic_gbps, latency_ns) for i in nics) for n in names)
    fabric = fabrics.build(kind, table, links, len(names), facts.nics, facts.nic_gbps)
    table.end()
    return replace(router, nic_out=nic_out, nic_in=nic_in, fabric=fabric)
