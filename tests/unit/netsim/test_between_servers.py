"""NCCL between servers: what its source says of chunks, channels, hosts and trees, and what hops cost."""

from __future__ import annotations

import copy

import pytest

import netsim
from netsim.collectives import NcclSettings, Plan, load_params, plan
from netsim.collectives.channels import multicast_step
from netsim.topology import Topology
from profiles.descriptions.cluster import load_cluster

MIB = 1 << 20


def cluster(name: str, servers: int, server: dict[str, object] | None = None, **fabric: object) -> Topology:
    spec = copy.deepcopy(load_cluster(name).network)
    spec["server"] |= server or {}
    spec["fabric"] |= fabric
    return netsim.build(spec, servers=servers)


def time_us(made: Plan) -> float:
    moving = [group.nbytes * 8 / group.cap_gbps for group in made.groups]
    return (made.latency_ns + max(moving, default=0.0)) / 1000


def all_reduce(nbytes: int, topology: Topology, generation: str, **settings: object) -> Plan:
    ranks = range(len(topology.endpoints))
    return plan("all_reduce", nbytes, ranks, topology, load_params(generation), settings=NcclSettings(**settings))


@pytest.mark.parametrize(
    ("nbytes", "over_nodes", "step"),
    [
        # 16 channels x 8 members x 128 KiB; below 64 such steps chunks of 64 KiB, below 8 of these 32, below 2 16.
        (1024 * MIB, False, 16 * MIB),
        (1023 * MIB, False, 8 * MIB),
        (64 * MIB, False, 8 * MIB),
        (63 * MIB, False, 4 * MIB),
        (8 * MIB, False, 4 * MIB),
        (7 * MIB, False, 2 * MIB),
        (1 * MIB, False, 1 * MIB),
        # Trees between servers: below 4 steps 64 KiB, below 1 of these 32.
        (64 * MIB, True, 16 * MIB),
        (63 * MIB, True, 8 * MIB),
        (7 * MIB, True, 4 * MIB),
    ],
)
def test_steps_of_multicast_are_nccls_chunks(nbytes: int, over_nodes: bool, step: int) -> None:
    assert multicast_step(nbytes, 16, 8, over_nodes) == step


def test_a_small_all_reduce_crosses_a_longer_way_twice_for_each_level_of_its_tree() -> None:
    near = [cluster("dgx-h100", servers) for servers in (2, 4)]
    far = [cluster("dgx-h100", servers, nic_latency_ns=700 + 5_000) for servers in (2, 4)]
    for levels, (one, other) in enumerate(zip(near, far, strict=True), 1):
        plans = [all_reduce(1024, topology, "hopper") for topology in (one, other)]
        assert {made.algorithm for made in plans} == {"tree"}
        assert time_us(plans[1]) - time_us(plans[0]) == pytest.approx(2 * levels * 10)


def test_a_small_all_gather_crosses_the_way_between_two_servers_twice() -> None:
    # A ring over two servers has two hops between them, and a chunk that starts behind one of them makes both. A way
    # begins and ends with a card.
    near, far = cluster("dgx-h100", 2), cluster("dgx-h100", 2, nic_latency_ns=700 + 5_000)
    times = [time_us(plan("all_gather", 1024, range(16), topology, load_params("hopper"))) for topology in (near, far)]
    assert times[1] - times[0] == pytest.approx(2 * 10)


def test_two_servers_with_few_cards_take_trees() -> None:
    # A card of a tree over two servers carries half of what NVLink does: 4 cards of 12.5 GB/s move 44, a ring 25.
    tree, ring = (all_reduce(1 << 31, cluster("p4d", servers), "ampere") for servers in (2, 3))
    assert (tree.algorithm, ring.algorithm) == ("tree", "ring")
    assert (1 << 31) / time_us(tree) / 1000 == pytest.approx(4 * 12.5 * 0.95 * 0.92, rel=0.02)
    assert (1 << 31) / time_us(ring) / 1000 == pytest.approx(4 * 12.5 * 0.95 * 24 / 46, rel=0.02)


def test_nccl_leaves_ll_sooner_on_amd_hosts() -> None:
    # Published all-gathers of two servers with 8 B200: the times jump at 1 MiB on Intel hosts, at 256 KiB on others.
    params = load_params("blackwell")
    for cpu, last_ll in (("intel", 512 << 10), ("amd", 128 << 10)):
        topology = cluster("dgx-b200", 2, {"cpu": cpu})
        protocols = [plan("all_gather", n, range(16), topology, params).protocol for n in (last_ll, 2 * last_ll)]
        assert protocols == ["ll", "ll128"], cpu


def test_eight_peers_of_a_server_share_their_channels() -> None:
    params = load_params("blackwell")
    topology = cluster("dgx-b200", 2)
    each = 64 * MIB
    for channels in (1, 2):
        settings = NcclSettings(channels_per_net_peer=channels)
        made = plan("all_to_all", 16 * each, range(16), topology, params, settings=settings)
        blocks_gbs = channels * params.p2p.exchange.simple_gbs
        assert 8 * each / time_us(made) / 1000 == pytest.approx(min(blocks_gbs, 50 * 0.95), rel=0.05)


def test_a_sender_and_a_receiver_have_the_channels_of_their_communicator() -> None:
    # 8 ranks on each of two servers: 4 channels for a peer, if so many are asked for. Alone they would have one.
    params, topology = load_params("hopper"), cluster("dgx-h100", 2)
    four = NcclSettings(channels_per_net_peer=4)
    made = plan("send_recv", 64 * MIB, (7, 8), topology, params, ranks=16, exchange=True, settings=four)
    assert made.channels == 4


def test_sends_to_more_peers_are_posted_one_after_the_other() -> None:
    params, topology = load_params("hopper"), cluster("dgx-h100", 2)
    few = plan("all_to_all", 1024, (0, 8), topology, params)
    many = plan("all_to_all", 1024, range(16), topology, params)
    assert time_us(many) - time_us(few) == pytest.approx(7 * 2 * params.p2p.post_us, abs=0.2)
