"""Builds the inside of a server: how its GPUs reach each other and its NICs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from netsim.fields import SpecTable
from netsim.topology.links import LinkPath, LinkTable, read_gbps, read_latency_ns
from netsim.topology.topology import ServerFacts, TrafficRules
from netsim.units import MAX_GBPS

MOST_PARTS = 1024
"""The most GPUs, NICs, PCIe switches or sockets of one server."""
MOST_PLUGIN_US = 1e6
TUNERS = ("nccl", "aws-p5", "aws-p5en")
"""NCCL's own choice, and the tuners of ``netsim.collectives``."""


class Server(Protocol):
    """One built server."""

    def inside(self, a: int, b: int) -> LinkPath:
        """The links from GPU a to GPU b of this server."""
        ...

    def to_nic(self, gpu: int, nic: int) -> LinkPath:
        """The links from a GPU to a NIC, up to but without the NIC's own port."""
        ...

    def from_nic(self, nic: int, gpu: int) -> LinkPath:
        """The links from a NIC, after its own port, to a GPU."""
        ...


class Design(Protocol):
    """A kind of server, read from a table; ``build`` makes one instance of it."""

    @property
    def facts(self) -> ServerFacts:
        """The facts that planners and the fabric need."""
        ...

    def build(self, table: LinkTable, name: str) -> Server:
        """Adds the links of one server called ``name``."""
        ...


def nic_of(facts: ServerFacts, gpu: int) -> int:
    """The NIC that a GPU uses: GPUs spread evenly over the usable NICs."""
    return facts.usable_nics[gpu * len(facts.usable_nics) // facts.gpus]


@dataclass(frozen=True, slots=True)
class _NvSwitchServer:
    out: tuple[int, ...]
    in_: tuple[int, ...]
    pcie_out: tuple[int, ...]
    pcie_in: tuple[int, ...]
    facts: ServerFacts
    pxn: bool

    def inside(self, a: int, b: int) -> LinkPath:
        if self.facts.through_host:
            return (self.pcie_out[a], self.pcie_in[b])
        return (self.out[a], self.in_[b])

    def to_nic(self, gpu: int, nic: int) -> LinkPath:
        near = self._near(gpu, nic)
        if near == gpu or not self.pxn:
            return (self.pcie_out[gpu],)
        return (self.out[gpu], self.in_[near], self.pcie_out[near])

    def from_nic(self, nic: int, gpu: int) -> LinkPath:
        return (self.pcie_in[gpu],)

    def _near(self, gpu: int, nic: int) -> int:
        """The GPU next to the NIC: a transfer reaches it over NVLink instead of crossing the PCIe tree."""
        if gpu * self.facts.nics // self.facts.gpus == nic:
            return gpu
        return -(-nic * self.facts.gpus // self.facts.nics)


@dataclass(frozen=True, slots=True)
class NvSwitch:
    """GPUs joined by NVSwitch: one port in and one port out per GPU, a PCIe link from each GPU towards its NIC."""

    facts: ServerFacts
    gpu_gbps: float
    gpu_latency_ns: int
    pcie_gbps: float
    pcie_latency_ns: int
    pxn: bool

    def build(self, table: LinkTable, name: str) -> Server:
        gpus = range(self.facts.gpus)
        out = tuple(table.add(f"{name}/gpu{i}:out", self.gpu_gbps, self.gpu_latency_ns) for i in gpus)
        in_ = tuple(table.add(f"{name}/gpu{i}:in", self.gpu_gbps) for i in gpus)
        on_pcie = gpus if self.facts.nics or self.facts.through_host else ()
        p_out = tuple(table.add(f"{name}/gpu{i}:pcie-out", self.pcie_gbps, self.pcie_latency_ns) for i in on_pcie)
        p_in = tuple(table.add(f"{name}/gpu{i}:pcie-in", self.pcie_gbps, self.pcie_latency_ns) for i in on_pcie)
        return _NvSwitchServer(out, in_, p_out, p_in, self.facts, self.pxn)


@dataclass(frozen=True, slots=True)
class _PcieServer:
    out: tuple[int, ...]
    in_: tuple[int, ...]
    switch_up: tuple[int, ...]
    switch_down: tuple[int, ...]
    bridge_out: tuple[int, ...]
    bridge_in: tuple[int, ...]
    pairs: dict[tuple[int, int], int]
    switch: tuple[int, ...]
    socket: tuple[int, ...]
    nic_switch: tuple[int, ...]
    through_host: bool

    def inside(self, a: int, b: int) -> LinkPath:
        if (a, b) in self.pairs and not self.through_host:
            return (self.pairs[a, b],)
        return (self.out[a], *self._between(self.switch[a], self.switch[b]), self.in_[b])

    def to_nic(self, gpu: int, nic: int) -> LinkPath:
        return (self.out[gpu], *self._between(self.switch[gpu], self.nic_switch[nic]))

    def from_nic(self, nic: int, gpu: int) -> LinkPath:
        return (*self._between(self.nic_switch[nic], self.switch[gpu]), self.in_[gpu])

    def _between(self, a: int, b: int) -> LinkPath:
        if a == b:
            return ()
        x, y = self.socket[a], self.socket[b]
        across = () if x == y else (self.bridge_out[x], self.bridge_in[y])
        return (self.switch_up[a], *across, self.switch_down[b])


@dataclass(frozen=True, slots=True)
class Pcie:
    """GPUs below PCIe switches, switches below host bridges, host bridges joined by the sockets' interconnect.

    Optional NVLink bridges join GPUs 0-1, 2-3 and so on.
    """

    facts: ServerFacts
    pcie_gbps: float
    pcie_latency_ns: int
    switches: int
    sockets: int
    socket_gbps: float
    socket_latency_ns: int
    pair_gbps: float

    def build(self, table: LinkTable, name: str) -> Server:
        ids: dict[str, list[int]] = {}

        def add(kind: str, count: int, label: str, gbps: float, latency_ns: int) -> None:
            ids[kind] = [table.add(f"{name}/{label.format(i)}", gbps, latency_ns) for i in range(count)]

        gpus = self.facts.gpus
        add("out", gpus, "gpu{}:out", self.pcie_gbps, self.pcie_latency_ns)
        add("in", gpus, "gpu{}:in", self.pcie_gbps, self.pcie_latency_ns)
        add("up", self.switches if self.switches > 1 else 0, "pcie{}:up", self.pcie_gbps, self.pcie_latency_ns)
        add("down", self.switches if self.switches > 1 else 0, "pcie{}:down", self.pcie_gbps, self.pcie_latency_ns)
        add("bout", self.sockets if self.sockets > 1 else 0, "socket{}:out", self.socket_gbps, self.socket_latency_ns)
        add("bin", self.sockets if self.sockets > 1 else 0, "socket{}:in", self.socket_gbps, self.socket_latency_ns)
        pairs = {}
        if self.pair_gbps:
            for a in range(0, gpus - 1, 2):
                for x, y in ((a, a + 1), (a + 1, a)):
                    pairs[x, y] = table.add(f"{name}/gpu{x}:nvlink{y}", self.pair_gbps)
        return _PcieServer(
            out=tuple(ids["out"]),
            in_=tuple(ids["in"]),
            switch_up=tuple(ids["up"]),
            switch_down=tuple(ids["down"]),
            bridge_out=tuple(ids["bout"]),
            bridge_in=tuple(ids["bin"]),
            pairs=pairs,
            switch=tuple(i * self.switches // gpus for i in range(gpus)),
            socket=tuple(i * self.sockets // self.switches for i in range(self.switches)),
            nic_switch=tuple(i * self.switches // self.facts.nics for i in range(self.facts.nics)),
            through_host=self.facts.through_host,
        )


def read(table: SpecTable, rules: TrafficRules) -> Design:
    """The server design in ``[network.server]``, as far as the rules allow its use."""
    kind = table.text("kind", choices=("nvswitch", "pcie", "host"))
    gpus = table.integer("gpus", 1, least=1, most=MOST_PARTS)
    nics = table.integer("nics", 0, least=0, most=MOST_PARTS)
    # This design reaches each NIC through the PCIe link of a GPU, so further NICs would have no place.
    if nics > gpus and kind == "nvswitch":
        raise table.error("nics", f"{nics} NICs for {gpus} GPUs: give the GPUs' combined NIC speed instead")
    nic_gbps = read_gbps(table, "nic_gbps") if nics else 0.0
    usable = tuple(range(nics)) if rules.nics is None else rules.nics
    cpu = table.text("cpu", "intel", choices=("intel", "amd", "arm"))
    chooser = ServerFacts(
        amd=cpu == "amd",
        arm=cpu == "arm",
        plugin_us=table.number("plugin_latency_us", 0.0, least=0.0, most=MOST_PLUGIN_US),
        tuner=table.text("tuner", "nccl", choices=TUNERS),
    )
    design: Design
    if kind == "nvswitch":
        # Rules without peer-to-peer access leave NVLink unused: traffic then passes through the host over PCIe.
        nvls, gpu_gbps = table.flag("nvls", False), read_gbps(table, "gpu_gbps")
        latency_ns = read_latency_ns(table, "gpu_latency_ns")
        pcie_gbps = read_gbps(table, "pcie_gbps", 504.0)
        facts = replace(
            chooser,
            kind=kind,
            gpus=gpus,
            nics=nics,
            nvls=nvls and rules.nvls and rules.p2p,
            nic_gbps=nic_gbps,
            gpu_gbps=gpu_gbps if rules.p2p else pcie_gbps,
            usable_nics=usable,
            nvlink=rules.p2p,
            through_host=not rules.p2p,
        )
        pcie_latency_ns, pxn = read_latency_ns(table, "pcie_latency_ns"), table.flag("pxn", True) and rules.pxn
        design = NvSwitch(facts, gpu_gbps, latency_ns, pcie_gbps, pcie_latency_ns, pxn)
    else:
        pcie_gbps = read_gbps(table, "pcie_gbps", 252.0)
        facts = replace(
            chooser,
            kind=kind,
            gpus=gpus,
            nics=nics,
            nic_gbps=nic_gbps,
            gpu_gbps=pcie_gbps,
            usable_nics=usable,
            through_host=not rules.p2p,
        )
        switches = table.integer("switches", 1, least=1, most=MOST_PARTS)
        sockets = table.integer("sockets", 1, least=1, most=MOST_PARTS)
        if sockets > switches:
            raise table.error("sockets", f"{sockets} sockets for {switches} PCIe switches")
        design = Pcie(
            facts,
            facts.gpu_gbps,
            read_latency_ns(table, "pcie_latency_ns"),
            switches,
            sockets,
            read_gbps(table, "socket_gbps", 160.0),
            read_latency_ns(table, "socket_latency_ns"),
            table.number("nvlink_pair_gbps", 0.0, least=0.0, most=MAX_GBPS),
        )
    return design


def gpu_names(names: Sequence[str], gpus: int) -> list[str]:
    """The endpoint names, server by server."""
    return [f"{name}/gpu{i}" for name in names for i in range(gpus)]
