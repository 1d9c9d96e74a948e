"""Every shipped cluster as the network of a run: 16 ranks on its servers."""

from __future__ import annotations

import pytest

import netsim
from emu.contract.records import NcclKind
from netsim.collectives import load_params
from phantora_async.coordinator.network_model import NetsimNetworkModel
from phantora_async.virtual_time import Collective
from phantora_async.virtual_time.facts import Comm
from profiles import Cluster, cluster_names, load_cluster

RANKS = 16
BF16 = 9
COUNT = 1 << 28
BUFFER_GB = COUNT * 2 / 1e9


def bus_gb_per_s(cluster: Cluster, ranks: int = RANKS) -> float:
    """Bus bandwidth of a large all-reduce over ranks that fill one server after the other."""
    per_server = cluster.gpus_per_server
    servers = [min(per_server, ranks - first) for first in range(0, ranks, per_server)]
    topology = netsim.build(cluster.network, cluster.network_servers(len(servers)))
    network = NetsimNetworkModel(
        topology, load_params(cluster.nccl), servers, servers_per_domain=cluster.servers_per_nvlink_domain
    )
    members = tuple(range(ranks))
    comm = Comm(1, members, tuple(rank % per_server for rank in members), {rank: rank for rank in members}, "test")
    network.begin(Collective(comm, 0, NcclKind.ALL_REDUCE, BF16, 0, COUNT, 0, members), 0)
    done_ns = network.next_ns()
    assert done_ns is not None
    return BUFFER_GB / (done_ns * 1e-9) * 2 * (ranks - 1) / ranks


@pytest.mark.parametrize("name", cluster_names())
def test_sixteen_ranks_are_bound_by_what_joins_the_servers(name: str) -> None:
    cluster = load_cluster(name)
    server = cluster.network["server"]
    if cluster.servers_per_nvlink_domain * cluster.gpus_per_server >= RANKS:
        port = server["gpu_gbps"] / 8  # 119 of a DGX-2's GPU
        assert min(300, 0.9 * port) < bus_gb_per_s(cluster) < 1.6 * port  # NVLS reduces in the switch
        return
    cards = server["nics"] * server["nic_gbps"] / 8
    inside = server["gpu_gbps"] if server["kind"] == "nvswitch" else server["pcie_gbps"]
    # In-switch reduction sends less over the cards than a ring.
    assert 0.15 * min(cards, inside / 8) < bus_gb_per_s(cluster) < 1.7 * cards


def test_nvlink_joins_the_servers_of_a_rack() -> None:
    rack, eth = load_cluster("gb200-nvl72"), load_cluster("dgx-b200")
    assert bus_gb_per_s(rack, 72) > 1.5 * bus_gb_per_s(eth, 72)
    assert bus_gb_per_s(rack, 80) < 0.7 * bus_gb_per_s(rack, 72)  # a second rack: over the cards


def test_racks_of_blackwell_ultra_have_twice_the_rate_between_them() -> None:
    older, ultra = load_cluster("gb200-nvl72"), load_cluster("gb300-nvl72")
    assert ultra.network["server"]["nic_gbps"] == 2 * older.network["server"]["nic_gbps"]
    assert (ultra.gpus_per_server, ultra.servers_per_nvlink_domain) == (4, 18)
    # The two trays of a second rack have 8 cards: those bind, where whole racks' cards do not.
    assert 1.2 * bus_gb_per_s(older, 80) < bus_gb_per_s(ultra, 80) < 2 * bus_gb_per_s(older, 80)
    assert bus_gb_per_s(ultra, 144) < 1.02 * bus_gb_per_s(older, 144)
