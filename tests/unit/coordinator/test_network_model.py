"""netsim behind virtual time: how NCCL's sizes reach it, and that completions come back in order."""

from __future__ import annotations

import netsim
from emu.contract.records import NcclKind
from netsim.collectives import load_params, plan
from phantora_async.coordinator.network_model import NetsimNetworkModel
from phantora_async.virtual_time import Collective
from phantora_async.virtual_time.facts import Comm
from profiles import load_cluster

BF16 = 9
SERVERS = (8, 8)
TOPOLOGY = netsim.build(load_cluster("dgx-h200").network, servers=2)
PARAMS = load_params("hopper")


def network() -> NetsimNetworkModel:
    return NetsimNetworkModel(TOPOLOGY, PARAMS, SERVERS)


def comm_of(ranks: tuple[int, ...], number: int = 1) -> Comm:
    return Comm(number, ranks, tuple(r % 8 for r in ranks), {r: at for at, r in enumerate(ranks)}, "test")


def collective(
    op: int, count: int, ranks: tuple[int, ...] = tuple(range(16)), *, number: int = 1, root: int = 0
) -> Collective:
    comm = comm_of(ranks, number)
    return Collective(comm, 0, op, BF16, 0, count, 0, ranks)


def endpoints(ranks: tuple[int, ...]) -> list[int]:
    return [TOPOLOGY.gpu(rank // 8, rank % 8) for rank in ranks]


def test_sizes_are_what_netsim_means_by_them() -> None:
    ranks = tuple(range(16))
    expected = {
        NcclKind.ALL_REDUCE: 2_000_000,
        NcclKind.BROADCAST: 2_000_000,
        NcclKind.ALL_GATHER: 32_000_000,
        NcclKind.REDUCE_SCATTER: 32_000_000,
        NcclKind.ALL_TO_ALL: 32_000_000,
    }
    for op, nbytes in expected.items():
        name = op.name.lower()
        assert network().plan(collective(op, 1_000_000)) == plan(name, nbytes, endpoints(ranks), TOPOLOGY, PARAMS)


def test_a_message_crosses_between_its_two_ranks() -> None:
    comm = comm_of((3, 9))
    send = Collective(comm, 0, NcclKind.SEND, BF16, 0, 500, -1, (9, 3))
    assert network().plan(send) == plan("send_recv", 1000, endpoints((9, 3)), TOPOLOGY, PARAMS)


def test_a_message_to_oneself_needs_no_network() -> None:
    net = network()
    net.begin(1, Collective(comm_of((3, 9)), 0, NcclKind.SEND, BF16, 0, 500, -1, (3, 3)), 100)
    at_ns = net.next_ns()
    assert at_ns is not None
    assert 100 < at_ns < 100_000
    assert net.complete(at_ns) == [1]
    assert net.next_ns() is None


def test_two_that_share_links_take_longer_than_one() -> None:
    def end_of(*groups: tuple[int, ...]) -> list[int]:
        net = network()
        for key, ranks in enumerate(groups):
            net.begin(key, collective(NcclKind.ALL_GATHER, 100_000_000, ranks, number=key + 1), 0)
        ends = {}
        while (at_ns := net.next_ns()) is not None:
            for key in net.complete(at_ns):
                ends[key] = at_ns
            net.commit(at_ns)
        return [ends[key] for key in range(len(groups))]

    whole = tuple(range(16))
    (alone,) = end_of(whole)
    both = end_of(whole, whole)
    assert both[0] == both[1]
    assert 1.7 < both[0] / alone <= 2.0  # one alone is held back by its channels before the links are full
    left, right = tuple(range(8)), tuple(range(8, 16))
    assert end_of(left, right) == end_of(left) * 2  # on different servers they do not meet


def test_completions_of_one_instant_come_in_order_of_keys() -> None:
    net = network()
    for key in (5, 3, 4):
        ranks = (2 * key % 8, 2 * key % 8 + 1)
        net.begin(key, collective(NcclKind.ALL_REDUCE, 1 << 20, ranks, number=key), 0)
    at_ns = net.next_ns()
    assert at_ns is not None
    assert net.complete(at_ns) == [3, 4, 5]


def test_flows_begin_when_the_latency_has_passed() -> None:
    net, one = network(), collective(NcclKind.ALL_REDUCE, 1 << 24)
    late_ns = 1_000_000
    net.begin(1, one, 0)
    first_ns = net.next_ns()
    assert first_ns is not None
    assert net.complete(first_ns) == [1]
    net.begin(2, collective(NcclKind.ALL_REDUCE, 1 << 24), first_ns + late_ns)
    second_ns = net.next_ns()
    assert second_ns == first_ns + late_ns + first_ns
