"""NCCL between servers: what its source says of chunks, channels, hosts and trees, and what hops cost."""

from __future__ import annotations

import copy
import math

import pytest

import netsim
from netsim.collectives import NcclSettings, Plan, load_params, plan, provider_tuners
from netsim.collectives.channels import multicast_step
from netsim.topology import Topology, servers
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
    ("nbytes", "nodes", "step"),
    [
        # 16 channels x 8 members x 128 KiB; below 64 such steps chunks of 64 KiB, below 8 of these 32, below 2 16.
        (1024 * MIB, 1, 16 * MIB),
        (1023 * MIB, 1, 8 * MIB),
        (64 * MIB, 1, 8 * MIB),
        (63 * MIB, 1, 4 * MIB),
        (8 * MIB, 1, 4 * MIB),
        (7 * MIB, 1, 2 * MIB),
        (1 * MIB, 1, 1 * MIB),
        # Trees between servers: below 4 steps 64 KiB, below 1 of these 32.
        (64 * MIB, 2, 16 * MIB),
        (63 * MIB, 2, 8 * MIB),
        (7 * MIB, 2, 4 * MIB),
        # From four servers on no chunk is larger than 64 KiB.
        (1024 * MIB, 4, 8 * MIB),
        (63 * MIB, 4, 8 * MIB),
        (7 * MIB, 4, 4 * MIB),
    ],
)
def test_steps_of_multicast_are_nccls_chunks(nbytes: int, nodes: int, step: int) -> None:
    assert multicast_step(nbytes, 16, 8, nodes, NcclSettings()) == step


def test_a_larger_chunk_of_multicast_waits_for_a_message_that_fills_it() -> None:
    # 16 channels x 8 heads x 512 KiB are 64 MiB; below 32 such steps chunks of 256 KiB, below 16 of these 128.
    large = NcclSettings(nvls_chunk_nbytes=MIB // 2, nvls_tree_chunk_nbytes=MIB // 2)
    steps = [multicast_step(nbytes, 16, 8, 2, large) for nbytes in (2048 * MIB, 2047 * MIB, 511 * MIB)]
    assert steps == [64 * MIB, 32 * MIB, 16 * MIB]


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


def test_a_provider_s_plugin_declares_a_latency_that_moves_the_choice_to_fewer_hops() -> None:
    # NCCL adds the declared latency once to a hop with LL128, twice to one with Simple: with 75 us NVLSTree costs
    # 150 us more than its higher rate saves, up to tens of MiB.
    plain, efa = cluster("dgx-h100", 2), cluster("dgx-h100", 2, {"plugin_latency_us": 75.0})
    made = [all_reduce(8 * MIB, topology, "hopper") for topology in (plain, efa)]
    assert [(one.algorithm, one.protocol) for one in made] == [("nvls_tree", "simple"), ("tree", "ll128")]


def test_a_provider_s_tuner_chooses_where_it_has_an_opinion() -> None:
    # aws-ofi-nccl on two p5: trees with LL128 up to 30 MiB, NVLSTree above; it says nothing on gathers.
    p5 = cluster("p5", 2)
    ways = [all_reduce(n * MIB, p5, "hopper") for n in (0, 1, 30, 31, 4096)]
    assert [one.algorithm for one in ways] == ["tree", "tree", "tree", "nvls_tree", "nvls_tree"]
    assert {one.protocol for one in ways[:3]} == {"ll128"}
    forced = all_reduce(MIB, p5, "hopper", algorithms={"all_reduce": frozenset({"ring"})})
    assert forced.algorithm == "ring"


def test_limits_between_two_rows_of_a_tuner_follow_the_ranks() -> None:
    # From 32 to 64 ranks the limit of LL128's trees on p5 grows from 36 to 112 MiB: halfway, 45 ranks, it is their
    # geometric mean. The tuner counts servers of 8 GPUs, so 48 ranks are six of them.
    middle = 37748736 * (117440512 / 37748736) ** (math.log2(48 / 32))
    below, above = (provider_tuners.chosen("aws-p5", "all_reduce", round(middle * f), 48, 6) for f in (0.99, 1.01))
    assert (below, above) == (("tree", "ll128"), ("ring", "ll128"))
    assert provider_tuners.chosen("aws-p5", "all_reduce", 1024, 12, 6) is None


def test_every_tuner_that_a_server_may_name_exists() -> None:
    assert set(servers.TUNERS) == {provider_tuners.NCCLS_OWN, *provider_tuners.load_tuners()}
    for tuner in provider_tuners.load_tuners().values():
        for rows in tuner.rows.values():
            assert [row.ranks for row in rows] == sorted({row.ranks for row in rows})


def test_older_versions_of_nccl_leave_trees_for_multicast_sooner() -> None:
    # Over 4 servers NVLSTree makes four hops: 14 us each before 2.29, 20.9 since, with 8 MiB in the balance.
    topology = cluster("dgx-h100", 4)
    made = [all_reduce(8 * MIB, topology, "hopper", version=version).algorithm for version in ((2, 28), (2, 29))]
    assert made == ["nvls_tree", "tree"]


def test_the_time_of_a_choice_does_not_depend_on_the_version() -> None:
    topology = cluster("dgx-h100", 4)
    ring = {"all_reduce": frozenset({"ring"})}
    times = {
        time_us(
            all_reduce(
                n, topology, "hopper", version=version, algorithms=ring, protocols={"all_reduce": frozenset({"ll"})}
            )
        )
        for n in (1 << 20,)
        for version in ((2, 20), (2, 30))
    }
    assert len(times) == 1


def test_multicast_that_feeds_trees_has_a_lower_rate_than_in_one_server() -> None:
    # Published all-reduces of Blackwell over two servers and over two racks end at 385 to 390 GB/s, whatever the cards.
    for number, nic_gbps in ((1, 400.0), (2, 8000.0)):
        topology = cluster("dgx-b200", number, {"nic_gbps": nic_gbps})
        gbs = (1 << 36) / time_us(all_reduce(1 << 36, topology, "blackwell")) / 1000
        assert gbs == pytest.approx(482 if number == 1 else 387, rel=0.03)


def test_a_ring_s_channel_hands_its_slices_to_the_host_s_proxy() -> None:
    # 8 cards of 50 GB/s and two channels each. A channel's block copies a slice of 1 MiB, then waits for the proxy: it
    # moves less than half a card's rate. Cards of 12.5 GB/s are slower than the blocks.
    params = load_params("hopper")
    kernel = params.kernel
    slice_us = MIB / (1000 * kernel.relay_gbs[2]) + kernel.slice_us + params.p2p.net_chunk_us
    for nic_gbps, card_gbs in ((400.0, 2 * MIB / slice_us / 1000), (100.0, 12.5 * 0.95)):
        topology = cluster("dgx-h100", 2, {"nic_gbps": nic_gbps})
        made = plan("all_gather", 1 << 34, range(16), topology, params)
        assert (1 << 34) * 15 / 16 / 8 / time_us(made) / 1000 == pytest.approx(card_gbs, rel=0.01), nic_gbps


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
