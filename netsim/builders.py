"""From a ``[network]`` table to a topology."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netsim import fabrics, servers
from netsim.fabrics import Fabric
from netsim.servers import Server
from netsim.spec import FieldError, Table
from netsim.topology import ROUTINGS, LinkTable, Path_, ServerFacts, Topology


@dataclass(frozen=True, slots=True)
class ClusterRouter:
    """Routes in a cluster of equal servers. Between servers, traffic leaves on the rail of the destination's NIC."""

    built: tuple[Server, ...]
    facts: ServerFacts
    nic_out: tuple[tuple[int, ...], ...]
    nic_in: tuple[tuple[int, ...], ...]
    fabric: Fabric | None

    def routes(self, src: int, dst: int) -> Sequence[Path_]:
        gpus = self.facts.gpus
        (s, a), (d, b) = divmod(src, gpus), divmod(dst, gpus)
        if s == d:
            return (self.built[s].inside(a, b),)
        if self.fabric is None:
            return ()
        far = servers.nic_of(self.facts, b)
        near = far if self.facts.kind == "nvswitch" else servers.nic_of(self.facts, a)
        head = (*self.built[s].to_nic(a, near), self.nic_out[s][near])
        tail = (self.nic_in[d][far], *self.built[d].from_nic(far, b))
        return tuple((*head, *middle, *tail) for middle in self.fabric.between((s, near), (d, far)))


def from_table(table: Table, count: int) -> Topology:
    """The topology of ``count`` servers; SpecError (FieldError) for anything that does not fit."""
    routing = table.text("routing", "ecmp", ROUTINGS)
    if table.has("graph"):
        from netsim import graph

        topology = graph.from_table(table.table("graph"))
        topology.routing = routing
        table.end()
        return topology
    server_table = table.table("server")
    design = servers.read(server_table)
    server_table.end()
    facts = design.facts
    links = LinkTable()
    names = [f"node{i:03d}" for i in range(count)]
    built = tuple(design.build(links, name) for name in names)
    fabric = None
    nic_out: tuple[tuple[int, ...], ...] = ()
    nic_in: tuple[tuple[int, ...], ...] = ()
    kind = facts.kind
    if table.has("fabric"):
        fabric_table = table.table("fabric")
        if count > 1 and not facts.nics:
            raise FieldError("network.server.nics", f"{count} servers need NICs to reach each other")
        nic_latency_ns = fabric_table.count("nic_latency_ns", 0, least=0)
        kind = f"{kind} + {fabric_table.text('kind')}" if count == 1 else kind
        if count > 1:
            nics = range(facts.nics)
            nic_out = tuple(
                tuple(links.add(f"{n}/nic{i}:out", facts.nic_gbps, nic_latency_ns) for i in nics) for n in names
            )
            nic_in = tuple(
                tuple(links.add(f"{n}/nic{i}:in", facts.nic_gbps, nic_latency_ns) for i in nics) for n in names
            )
            fabric = fabrics.build(fabric_table, links, count, facts.nics, facts.nic_gbps)
            fabric_table.end()
    elif count > 1:
        raise FieldError("network.fabric", f"missing: {count} servers need a fabric between them")
    table.end()
    router = ClusterRouter(built, facts, nic_out, nic_in, fabric)
    return Topology(links.links, servers.gpu_names(names, facts.gpus), router, facts, kind, routing)
