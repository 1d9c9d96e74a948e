"""Writes a cluster's file from facts: what the nearest shipped cluster has, and what differs."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.descriptions.catalog import cluster_names
from profiles.descriptions.cluster import Cluster, load_cluster
from profiles.descriptions.gpu import load_gpu
from profiles.errors import ProfileError
from profiles.sources.facts import Fact, Facts

_FAMILIES = (("dgx-", "hgx-"), ("pcie-",))
"""The prefixes of shipped clusters that stand for no cloud: with NVSwitch, and without."""
_ETHERNET = {"dgx-h100": "hgx-h100-roce", "dgx-h200": "hgx-h200-roce"}
_ETHERNET_LATENCIES = {"latency_ns": 900, "nic_latency_ns": 1200}
"""The latencies of switches and cards of Ethernet, as in hgx-h100-roce."""


@dataclass(frozen=True, slots=True)
class Described:
    """A cluster's file, with remarks for its reader."""

    text: str
    base: str
    servers: int | None
    """The number of servers that the sources name; `run -n` says how many are used."""
    assumed: tuple[str, ...]
    """The properties that no source names, so that they are as in the base."""


def described(facts: Facts) -> Described:
    """The file for these facts. Raises ProfileError if no source names the GPU, or the facts fit no server."""
    if facts.gpu is None:
        raise ProfileError("no source names the GPU: add it in words, for example '8 x H100'")
    base = _base(facts)
    top, server, fabric = _Table(), _Table(), _Table()
    gpus = facts.gpus.value if facts.gpus else base.gpus_per_server
    domain = base.servers_per_nvlink_domain
    if facts.gpu.value != base.gpu:
        top.put("gpu", facts.gpu)
        if (nccl := _generation(facts.gpu.value)) != base.nccl:
            top.put_value("nccl", nccl, "by the GPU's compute capability")
    if gpus != base.gpus_per_server:
        top.put_value("gpus_per_server", gpus, facts.gpus.origin if facts.gpus else "")
        server.put_value("gpus", gpus * domain, "")
    if facts.cpus and facts.cpus.value != base.cpus_per_server:
        top.put("cpus_per_server", facts.cpus)
    network = base.network["server"]
    _cards(facts, base, gpus, server)
    if network["kind"] == "pcie":
        if facts.sockets and facts.sockets.value != network.get("sockets", 1):
            server.put("sockets", facts.sockets)
            server.put_value("switches", facts.sockets.value, "one below each socket is assumed")
        if facts.nvlink_pairs and not facts.nvlink_pairs.value and network.get("nvlink_pair_gbps"):
            server.put_value("nvlink_pair_gbps", 0.0, facts.nvlink_pairs.origin)
    assumed = _fabric(facts, base, fabric)
    lines = [f"# Made from: {'; '.join(_origins(facts))}.", "# What is not here is as in the base."]
    lines += [f"# Note: {' '.join(note.split())}." for note in facts.notes]
    lines += [f'base = "{base.name}"', *top.lines]
    for name, table in (("server", server), ("fabric", fabric)):
        lines += ["", f"[network.{name}]", *table.lines] if table.lines else []
    servers = facts.servers.value if facts.servers else None
    return Described("\n".join(lines) + "\n", base.name, servers, tuple(assumed))


class _Table:
    """Lines of a TOML table, each with its origin."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def put(self, key: str, fact: Fact[object]) -> None:
        self.put_value(key, fact.value, fact.origin)

    def put_value(self, key: str, value: object, origin: str) -> None:
        shown = f'"{value}"' if isinstance(value, str) else str(value)
        comment = " ".join(origin.split())
        self.lines.append(f"{key} = {shown}" + (f"  # {comment}" if comment else ""))


def _base(facts: Facts) -> Cluster:
    """The shipped cluster with that GPU; if there is none, one whose servers are alike."""
    assert facts.gpu is not None
    pcie = facts.inside is not None and facts.inside.value == "pcie"
    prefixes = _FAMILIES[pcie] + _FAMILIES[not pcie]
    clusters = [load_cluster(name) for name in cluster_names()]
    same = [one for one in clusters if one.gpu == facts.gpu.value]
    order = sorted(same, key=lambda one: [not one.name.startswith(prefix) for prefix in prefixes])
    found = order[0] if order else load_cluster("pcie-l40s" if pcie or facts.inside is None else "dgx-h100")
    if facts.link and facts.link.value == "ethernet" and found.name in _ETHERNET:
        return load_cluster(_ETHERNET[found.name])
    if pcie and found.network["server"]["kind"] != "pcie":
        return load_cluster("pcie-h100")
    return found


def _generation(gpu: str) -> str:
    """The name of the constants of NCCL's tuner for a GPU."""
    major = load_gpu(gpu).cc_major
    return "blackwell" if major >= 10 else "hopper" if major == 9 else "ampere"


def _cards(facts: Facts, base: Cluster, gpus: int, server: _Table) -> None:
    domain = base.servers_per_nvlink_domain
    network = base.network["server"]
    nics = facts.nics.value if facts.nics else min(network["nics"] // domain, gpus)
    if gpus % max(nics, 1) and nics % gpus:
        raise ProfileError(f"{nics} cards cannot be spread evenly over {gpus} GPUs: say how many in words")
    gbps = facts.nic_gbps.value if facts.nic_gbps else float(network["nic_gbps"])
    if nics > gpus:
        # The network model has at most one port of a GPU: cards of one GPU are one port of their rates together.
        gbps, nics = gbps * nics / gpus, gpus
    if nics * domain != network["nics"]:
        server.put_value("nics", nics * domain, facts.nics.origin if facts.nics else "one per GPU at most")
    if gbps != network["nic_gbps"]:
        server.put_value("nic_gbps", gbps, facts.nic_gbps.origin if facts.nic_gbps else "all cards of a GPU")


def _fabric(facts: Facts, base: Cluster, fabric: _Table) -> list[str]:
    """Writes the differences to the base; returns what is taken from the base without a source."""
    network = base.network["fabric"]
    kind = facts.fabric.value if facts.fabric else network["kind"]
    new_kind = kind != network["kind"]
    if new_kind:
        fabric.put("kind", facts.fabric)  # type: ignore[arg-type]
    if kind != "switch":
        if facts.servers_per_leaf and facts.servers_per_leaf.value != network.get("servers_per_leaf"):
            fabric.put("servers_per_leaf", facts.servers_per_leaf)
        if facts.oversubscription and facts.oversubscription.value != network.get("oversubscription", 1.0):
            fabric.put("oversubscription", facts.oversubscription)
    ethernet = facts.link is not None and facts.link.value == "ethernet"
    if ethernet and network.get("nic_latency_ns", 0) < _ETHERNET_LATENCIES["nic_latency_ns"]:
        for key, value in _ETHERNET_LATENCIES.items():
            if kind != "switch" or key == "nic_latency_ns":
                fabric.put_value(key, value, "estimate, typical of Ethernet")
    elif new_kind:
        for key in ("latency_ns", "nic_latency_ns"):
            if key in network and (kind != "switch" or key == "nic_latency_ns"):
                fabric.put_value(key, network[key], "as in the base")
    told = {
        "how the servers' network is built": facts.fabric,
        "how many servers are at a leaf switch": facts.servers_per_leaf or (Fact(0, "") if kind == "switch" else None),
        "oversubscription": facts.oversubscription or (Fact(0, "") if kind == "switch" else None),
        "number of network cards": facts.nics,
        "rate of a network card": facts.nic_gbps,
        "processors of a server": facts.cpus,
        "what joins the GPUs of a server": facts.inside,
    }
    return [name for name, fact in told.items() if fact is None]


def _origins(facts: Facts) -> list[str]:
    """The files and words that facts come from, each once."""
    found = [fact.origin.partition(": ")[0] for fact in _all(facts)]
    return list(dict.fromkeys(found))


def _all(facts: Facts) -> list[Fact[object]]:
    values = (getattr(facts, name) for name in Facts.__slots__)
    return [value for value in values if isinstance(value, Fact)]
