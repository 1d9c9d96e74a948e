"""Describes a cluster: which GPU, how many to a server, what connects them, which host runs them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from profiles.descriptions.catalog import read
from profiles.descriptions.fields import Fields
from profiles.descriptions.gpu import Gpu, load_gpu

DEFAULT = "dgx-h200"
"""The cluster that is used if the user names neither a cluster nor a GPU."""
MOST_GPUS = 1024
MOST_CPUS = 8192
CPUS_PER_GPU = 16
"""The number of processors per GPU where a description does not say it."""


@dataclass(frozen=True, slots=True)
class Cluster:
    name: str
    gpu: str
    """A GPU's name or path, for load_gpu."""
    gpus_per_server: int
    cpus_per_server: int
    """The logical processors, as the operating system counts them."""
    servers_per_nvlink_domain: int
    """The number of servers that one NVLink network joins: 1, or the servers of a rack (NVL72). To `network` they are
    one.
    """
    host: str
    """A host model's name or path, for load_host."""
    nccl: str
    """The name of netsim's constants of NCCL's tuner: ampere, hopper, blackwell."""
    network: dict[str, Any]
    """netsim's [network] table, unread: docs/netsim.md says what its keys mean."""
    nccl_environment: dict[str, str]
    """The variables of NCCL that a provider's software sets on these servers, where a job's environment does not."""
    path: Path

    @property
    def cores_per_server(self) -> int:
        """The cores, with two logical processors each."""
        return max(1, self.cpus_per_server // 2)

    @property
    def multicast(self) -> bool:
        """True if the switches of a server copy what one GPU writes to several others (NVLink multicast)."""
        return bool(self._server().get("nvls", False))

    @property
    def nvswitch(self) -> bool:
        """True if switches join the NVLinks of a server's GPUs."""
        return self._server().get("kind") == "nvswitch"

    @property
    def peer_gb_per_s(self) -> float | None:
        """The GB/s at which one GPU of a server reads another one's memory; None: over PCIe, or not described."""
        gbps = self._server().get("gpu_gbps")
        return gbps / 8 if isinstance(gbps, int | float) and gbps > 0 else None

    @property
    def queues(self) -> str:
        """The kind of `[network.congestion]`: links have queues. Empty: flows share links fairly at every instant."""
        congestion = self.network.get("congestion")
        return str(congestion.get("kind", "")) if isinstance(congestion, dict) else ""

    @property
    def links(self) -> str:
        """Describes the links inside a server and between servers: ``PCIe of 31 GB/s, 2 cards of 200 Gbit/s``."""
        server = self._server()
        gbps = server.get("gpu_gbps" if server.get("kind") == "nvswitch" else "pcie_gbps")
        if not isinstance(gbps, int | float):
            return "its network"
        inside = f"{'NVLink' if server['kind'] == 'nvswitch' else 'PCIe'} of {gbps / 8:.0f} GB/s"
        if server.get("nvlink_pair_gbps"):
            inside += " with NVLink between pairs"
        nics = server.get("nics", 0) // self.servers_per_nvlink_domain
        return f"{inside}, {nics} x {server.get('nic_gbps', 0):g} Gbit/s to other servers"

    def _server(self) -> dict[str, Any]:
        server = self.network.get("server")
        return server if isinstance(server, dict) else {}

    def environment_of(self, servers: int) -> dict[str, str]:
        """The variables of NCCL that a job on so many servers has from the provider's software."""
        return self.nccl_environment if servers > 1 else {}

    def network_servers(self, servers: int) -> int:
        """The number of servers of `network` that correspond to so many servers."""
        return -(-servers // self.servers_per_nvlink_domain)


def load_cluster(name_or_path: str | os.PathLike[str]) -> Cluster:
    """Reads a shipped cluster by name or a user's file by path. Raises UnknownProfile or ProfileError."""
    top = read("cluster", name_or_path)
    gpus_per_server = top.integer("gpus_per_server", least=1, most=MOST_GPUS)
    cluster = Cluster(
        name=top.path.stem,
        gpu=top.text("gpu"),
        gpus_per_server=gpus_per_server,
        cpus_per_server=top.integer("cpus_per_server", CPUS_PER_GPU * gpus_per_server, least=1, most=MOST_CPUS),
        servers_per_nvlink_domain=top.integer("servers_per_nvlink_domain", 1, least=1, most=MOST_GPUS),
        host=_host(top.text("host"), top.path.parent),
        nccl=top.text("nccl"),
        network=top.unchecked("network"),
        nccl_environment=_nccl_environment(top),
        path=top.path,
    )
    top.end()
    _check_gpus(cluster, top)
    return cluster


@dataclass(frozen=True, slots=True)
class EmulatedMachine:
    """The machine on which a job runs, as the user asks for it."""

    cluster: Cluster
    gpu: Gpu
    assumed_links: str
    """The links that were assumed between GPUs if nobody described them for this GPU; else empty."""


def load_machine(cluster: str | os.PathLike[str] | None, gpu: str | os.PathLike[str] | None) -> EmulatedMachine:
    """The machine for a cluster and a GPU. A GPU alone brings the servers that it is sold in, a cluster its GPU;
    without both it is DEFAULT. Raises UnknownProfile or ProfileError.
    """
    if gpu is None:
        servers = load_cluster(DEFAULT if cluster is None else cluster)
        return _machine(servers, load_gpu(servers.gpu), "")
    found = load_gpu(gpu)
    servers = load_cluster(found.servers if cluster is None else cluster)
    known = servers.name == DEFAULT if cluster is None else load_gpu(servers.gpu).path == found.path
    return _machine(servers, found, "" if known else servers.links)


def _machine(cluster: Cluster, gpu: Gpu, assumed_links: str) -> EmulatedMachine:
    return EmulatedMachine(cluster, replace(gpu, peer_gb_per_s=cluster.peer_gb_per_s), assumed_links)


def _nccl_environment(top: Fields) -> dict[str, str]:
    table = top.table("nccl_environment", optional=True)
    found = {name: table.text(name) for name in sorted(table.keys())}
    for name in found:
        if not name.startswith("NCCL_"):
            raise table.error(name, "expected a variable of NCCL, which begins with NCCL_")
    return found


def _host(name_or_path: str, folder: Path) -> str:
    """The name or path of the host. A file may also be named relative to the cluster's folder."""
    beside = folder / name_or_path
    return (
        str(beside)
        if name_or_path.endswith(".toml") and not Path(name_or_path).exists() and beside.is_file()
        else name_or_path
    )


def load_network(name_or_path: str | os.PathLike[str]) -> dict[str, Any]:
    """The [network] table of a cluster, or of a file that has nothing else. Raises UnknownProfile or ProfileError."""
    return read("cluster", name_or_path).unchecked("network")


def _check_gpus(cluster: Cluster, top: Fields) -> None:
    """Raises ProfileError unless the network has as many GPUs in a server as the servers that it joins have."""
    server = cluster.network.get("server")
    found = server.get("gpus", 1) if isinstance(server, dict) else None
    if not isinstance(found, int):
        return  # a graph, or a fault that netsim names
    domain = cluster.servers_per_nvlink_domain
    if found != cluster.gpus_per_server * domain:
        servers = f" in each of {domain} servers that NVLink joins" if domain > 1 else ""
        raise top.error(
            "gpus_per_server",
            f"{cluster.gpus_per_server} GPUs{servers}, but network.server.gpus is {found}: "
            f"set it to {cluster.gpus_per_server * domain}",
        )
