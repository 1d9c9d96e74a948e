"""Topologies: what routes there are, what is refused and how it is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import netsim
import profiles
from netsim import SpecError, Topology, TopologyError
from netsim.topology import astra_sim, graph

CLUSTERS = Path(__file__).parents[3] / "profiles" / "clusters"


def _names(topology: Topology, path: tuple[int, ...]) -> list[str]:
    return [topology.links[link].name for link in path]


def _nvswitch(**more: Any) -> dict[str, Any]:
    return {"kind": "nvswitch", "gpus": 8, "gpu_gbps": 3200, "nics": 8, "nic_gbps": 400, **more}


def test_inside_an_nvswitch_server() -> None:
    topology = netsim.build({"server": {"kind": "nvswitch", "gpus": 8, "gpu_gbps": 3200}})
    path = topology.route(topology.gpu(0, 1), topology.gpu(0, 6))
    assert _names(topology, path) == ["node000/gpu1:out", "node000/gpu6:in"]


def test_between_servers_the_rail_of_the_destination_is_entered_over_nvlink() -> None:
    topology = netsim.build({"server": _nvswitch(), "fabric": {"kind": "rail", "servers_per_leaf": 4}}, servers=4)
    assert _names(topology, topology.route(topology.gpu(0, 1), topology.gpu(2, 1))) == [
        "node000/gpu1:pcie-out",
        "node000/nic1:out",
        "node002/nic1:in",
        "node002/gpu1:pcie-in",
    ]
    assert _names(topology, topology.route(topology.gpu(0, 1), topology.gpu(2, 5)))[:3] == [
        "node000/gpu1:out",
        "node000/gpu5:in",
        "node000/gpu5:pcie-out",
    ]


def test_ecmp_hashes_the_pair_of_endpoints() -> None:
    spec = {"server": _nvswitch(), "fabric": {"kind": "leaf-spine", "servers_per_leaf": 1, "spines": 4}}
    topology = netsim.build(spec, servers=2)
    assert len(topology.routes(3, 11)) == 4
    # CRC-32 of "3-11" is 0x64cc5a68, of "3-12" 0xfdc50bd2.
    assert "leaf0:up0" in _names(topology, topology.route(3, 11))
    assert "leaf0:up2" in _names(topology, topology.route(3, 12))


def test_oversubscription_divides_the_uplinks() -> None:
    fabric = {"kind": "leaf-spine", "servers_per_leaf": 2, "oversubscription": 4}
    topology = netsim.build({"server": _nvswitch(), "fabric": fabric}, servers=4)
    uplinks = [link for link in topology.links if link.name.startswith("leaf0:up")]
    assert sum(link.gbps for link in uplinks) == 1600


def test_fat_tree_has_k_squared_over_four_ways_between_pods() -> None:
    spec = {"server": {"kind": "host", "nics": 1, "nic_gbps": 100}, "fabric": {"kind": "fat-tree", "k": 4}}
    topology = netsim.build(spec, servers=16)
    assert len(topology.routes(0, 15)) == 4
    assert len(topology.routes(0, 2)) == 2
    assert len(topology.routes(0, 1)) == 1
    assert {len(path) for path in topology.routes(0, 15)} == {8}


def test_dragonfly_routes_are_minimal() -> None:
    fabric = {"kind": "dragonfly", "routers_per_group": 2, "nics_per_router": 2, "global_latency_ns": 900}
    topology = netsim.build({"server": {"kind": "host", "nics": 1, "nic_gbps": 100}, "fabric": fabric}, servers=12)
    for a in range(12):
        for b in range(12):
            if a != b:
                wide = [n for n in _names(topology, topology.route(a, b)) if ":to" in n and "router" not in n]
                assert len(wide) == (0 if a // 4 == b // 4 else 1)


def test_pcie_server_crosses_switches_and_sockets() -> None:
    server = {"kind": "pcie", "gpus": 4, "switches": 2, "sockets": 2, "nvlink_pair_gbps": 900}
    topology = netsim.build({"server": server})
    assert _names(topology, topology.route(0, 1)) == ["node000/gpu0:nvlink1"]
    assert _names(topology, topology.route(1, 2)) == [
        "node000/gpu1:out",
        "node000/pcie0:up",
        "node000/socket0:out",
        "node000/socket1:in",
        "node000/pcie1:down",
        "node000/gpu2:in",
    ]


@pytest.mark.parametrize("name", sorted(path.stem for path in CLUSTERS.glob("*.toml")))
def test_shipped_clusters_connect_every_pair(name: str) -> None:
    cluster = profiles.load_cluster(name)
    for servers in (1, 2, 3):
        topology = netsim.build(cluster.network, cluster.network_servers(servers))
        ends = range(len(topology.endpoints))
        assert all(topology.route(a, b) for a in ends for b in ends if a != b)


GRAPH = """
[network.graph]
hosts = ["a", "b", "c"]
switches = ["s", "t"]
link = [
  {from = "a", to = "s", gbps = 8, latency_ns = 5},
  {from = "b", to = "s", gbps = 8},
  {from = "a", to = "t", gbps = 8},
  {from = "t", to = "b", gbps = 8, both = false},
]
"""


def test_explicit_graph(tmp_path: Path) -> None:
    path = tmp_path / "graph.toml"
    path.write_text(GRAPH)
    topology = netsim.load(path)
    assert [_names(topology, way) for way in topology.routes(0, 1)] == [["a->s", "s->b"], ["a->t", "t->b"]]
    assert [_names(topology, way) for way in topology.routes(1, 0)] == [["b->s", "s->a"]]
    with pytest.raises(TopologyError, match="c cannot be reached from a"):
        topology.route(0, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[network]\n", "network.server: missing"),
        ("x = 1\n", "network: missing"),
        ("[network.server\n", "not TOML"),
        ('[network.server]\nkind = "ring"\n', ":2: network.server.kind: 'ring' is not one of"),
        (
            '[network.server]\nkind = "nvswitch"\ngpus = 0\n',
            ":3: network.server.gpus: expected a whole number from 1 to",
        ),
        (
            '[network.server]\nkind = "nvswitch"\ngpus = 8\ngpu_gbps = 0\n',
            ":4: network.server.gpu_gbps: expected a number of at least 1e-06",
        ),
        ('[network.server]\nkind = "nvswitch"\ngpu_gbps = 9\ngpuz = 8\n', ":4: network.server.gpuz: unknown key"),
        (
            GRAPH.replace('to = "t", gbps = 8}', 'to = "z", gbps = 8}'),
            "network.graph.link[2].to: unknown host or switch 'z'",
        ),
        (
            GRAPH.replace("gbps = 8, latency_ns = 5", "gbps = -8"),
            "network.graph.link[0].gbps: expected a number of at least 1e-06",
        ),
    ],
)
def test_bad_descriptions_name_line_and_field(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "net.toml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        netsim.load(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(SpecError, match=r"network\.fabric: missing"):
        netsim.build({"server": _nvswitch()}, servers=2)
    spec = {"server": {"kind": "nvswitch", "gpus": 8, "gpu_gbps": 1}, "fabric": {"kind": "switch"}}
    with pytest.raises(SpecError, match="need NICs"):
        netsim.build(spec, servers=2)
    with pytest.raises(SpecError, match="16 ports"):
        netsim.build({"server": _nvswitch(), "fabric": {"kind": "fat-tree", "k": 4}}, servers=4)
    with pytest.raises(TopologyError):
        netsim.build({"server": _nvswitch()}).gpu(0, 8)


def test_networkx_graphs() -> None:
    networkx = pytest.importorskip("networkx", reason="networkx is not installed")
    tree = networkx.Graph()
    tree.add_edge("h0", "s", gbps=8, latency_ns=3)
    tree.add_edge("h1", "s", gbps=16)
    topology = graph.from_networkx(tree)
    assert topology.endpoints == ("h0", "h1")
    assert _names(topology, topology.route(0, 1)) == ["h0->s", "s->h1"]
    assert topology.latency_ns(topology.route(0, 1)) == 3
    tree.add_edge("h2", "s")
    with pytest.raises(SpecError, match="no 'gbps'"):
        graph.from_networkx(tree)


def test_astra_sim_description(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    path = tmp_path / "net.yml"
    path.write_text(
        "topology: [Ring, Switch]\nnpus_count: [4, 2]\nbandwidth: [100.0, 50.0]\nlatency: [500.0, 1000.0]\n"
    )
    topology = astra_sim.from_yaml(path)
    assert len(topology.endpoints) == 8
    assert _names(topology, topology.route(0, 3)) == ["npu0:dim0:to3"]
    assert _names(topology, topology.route(0, 6)) == [
        "npu0:dim0:to1",
        "npu1:dim0:to2",
        "npu2:dim1:up",
        "npu6:dim1:down",
    ]
    assert topology.links[0].gbps == pytest.approx(858.9934592)
    path.write_text("topology: [Torus]\nnpus_count: [4]\nbandwidth: [1]\nlatency: [1]\n")
    with pytest.raises(SpecError, match="topology: 'Torus' is not one of"):
        astra_sim.from_yaml(path)
