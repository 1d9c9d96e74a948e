"""netsim behind virtual time: how NCCL's sizes reach it, and that completions come back in order."""

from __future__ import annotations

import pytest

import netsim
from emu.contract.records import NcclKind
from netsim.collectives import load_params, plan
from netsim.units import MAX_NS
from phantora_async.coordinator.network_model import NetsimNetworkModel
from phantora_async.errors import ClockEnded
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
    send = Collective(comm_of((3, 9)), 0, NcclKind.SEND, BF16, 0, 500, -1, (3, 3))
    net.begin(send, 100)
    at_ns = net.next_ns()
    assert at_ns is not None
    assert 100 < at_ns < 100_000
    assert net.complete(at_ns) == [send]
    assert net.next_ns() is None


def test_the_end_of_the_network_s_clock_is_told() -> None:
    """It is told also by a call whose latency alone leads beyond it."""
    network().begin(collective(NcclKind.ALL_REDUCE, 4), MAX_NS - 1_000_000)
    for at_ns in (MAX_NS - 1, 20 * 86_400 * 10**9):
        with pytest.raises(ClockEnded, match=r"all_reduce #0.* s: networks are simulated for the first 1,125,900 s"):
            network().begin(collective(NcclKind.ALL_REDUCE, 4), at_ns)


def test_two_that_share_links_take_longer_than_one() -> None:
    def ends_of(*groups: tuple[int, ...]) -> list[int]:
        net = network()
        begun = [
            collective(NcclKind.ALL_GATHER, 100_000_000, ranks, number=number) for number, ranks in enumerate(groups)
        ]
        for one in begun:
            net.begin(one, 0)
        ends = {}
        while (at_ns := net.next_ns()) is not None:
            for done in net.complete(at_ns):
                ends[done] = at_ns
            net.commit(at_ns)
        return [ends[one] for one in begun]

    whole = tuple(range(16))
    (alone,) = ends_of(whole)
    both = ends_of(whole, whole)
    assert both[0] == both[1]
    assert 1.7 < both[0] / alone <= 2.0  # one alone is held back by its channels before the links are full
    left, right = tuple(range(8)), tuple(range(8, 16))
    assert ends_of(left, right) == ends_of(left) * 2  # on different servers they share no link


def test_completions_of_one_instant_come_in_the_order_of_ranks() -> None:
    net = network()
    begun = [collective(NcclKind.ALL_REDUCE, 1 << 20, (rank, rank + 1), number=rank) for rank in (4, 0, 2)]
    for one in begun:
        net.begin(one, 0)
    at_ns = net.next_ns()
    assert at_ns is not None
    assert [done.ranks for done in net.complete(at_ns)] == [(0, 1), (2, 3), (4, 5)]


def test_a_collective_takes_as_long_when_it_begins_later() -> None:
    net, one, two = network(), *(collective(NcclKind.ALL_REDUCE, 1 << 24, number=number) for number in (1, 2))
    late_ns = 1_000_000
    net.begin(one, 0)
    first_ns = net.next_ns()
    assert first_ns is not None
    assert net.complete(first_ns) == [one]
    net.begin(two, first_ns + late_ns)
    assert net.next_ns() == first_ns + late_ns + first_ns


def test_a_send_in_a_kernel_that_also_receives_is_slower() -> None:
    def end_ns(exchange: bool) -> int:
        net, send = network(), Collective(comm_of((0, 1)), 0, NcclKind.SEND, BF16, 0, 1 << 25, -1, (0, 1))
        send.exchange = exchange
        net.begin(send, 0)
        at_ns = net.next_ns()
        assert at_ns is not None
        return at_ns

    assert end_ns(True) > 1.1 * end_ns(False)


def completion_ns(net: NetsimNetworkModel) -> int:
    """Returns the completion of the only collective in the network."""
    while not net.complete(at_ns := net.next_ns() or 0):
        assert at_ns
    return at_ns


def test_nothing_is_faster_than_its_shortest_time() -> None:
    """A collective that is alone in the network takes its shortest time; it is slower beside others."""
    for ranks in ((0, 1), (0, 1, 2, 3), tuple(range(16))):
        for op in (NcclKind.ALL_REDUCE, NcclKind.ALL_GATHER, NcclKind.ALL_TO_ALL, NcclKind.BROADCAST):
            for count in (0, 1, 5_000, 700_001, 40_000_000):
                net, one = network(), collective(op, count, ranks)
                shortest_ns = net.shortest_ns(one)
                net.begin(one, 1_000)
                took_ns = completion_ns(net) - 1_000
                assert shortest_ns <= took_ns
                assert shortest_ns > took_ns // 4, "says next to nothing"


def test_the_shortest_time_of_a_message_is_not_known_before_both_have_called() -> None:
    send = Collective(comm_of((3, 9)), 0, NcclKind.SEND, BF16, 0, 500_000, -1, (9, 3))
    net = network()
    assert net.shortest_ns(send) == 0
    send.joined += [9, 3]
    assert net.shortest_ns(send) > 0


def test_collectives_beside_kernels_are_slower_by_their_operation() -> None:
    """Medians of measured pairs (laboratory/notes/several-gpus-h100.md); data of 1 GiB, for which latency does not
    count."""

    def longer(op: NcclKind) -> float:
        took = []
        for beside in (False, True):
            net = network()
            net.begin(collective(op, 1 << 26, tuple(range(8))), 0, beside_compute=beside)
            took.append(completion_ns(net))
        return took[1] / took[0]

    measured = {NcclKind.ALL_GATHER: 1.40, NcclKind.REDUCE_SCATTER: 1.42, NcclKind.ALL_TO_ALL: 1.77}
    for op, slower in measured.items():
        assert longer(op) == pytest.approx(slower, rel=0.02), op


def test_kernels_beside_each_other_get_as_much_of_a_port() -> None:
    """Whatever the number of their peers: an all-to-all of 256 MiB that begins with an all-gather on four GPUs takes
    half of what they can move; measured calls in a row take 1.74 times as long (laboratory/rows/nccl-pairs-h100.jsonl).
    Three flows beside one would leave it at 1.1.
    """
    topology = netsim.build({"server": load_cluster("dgx-h200").network["server"] | {"nvls": False}})
    ranks = tuple(range(4))
    exchange = collective(NcclKind.ALL_TO_ALL, 1 << 25, ranks)

    def done_ns(*others: Collective) -> int:
        net = NetsimNetworkModel(topology, PARAMS, (4,))
        for one in (exchange, *others):
            net.begin(one, 0)
        while exchange not in net.complete(at_ns := net.next_ns() or 0):
            assert at_ns
        return at_ns

    gathers = [collective(NcclKind.ALL_GATHER, 1 << 27, ranks, number=2)]
    assert done_ns(*gathers) / done_ns() == pytest.approx(1.45, rel=0.03)


@pytest.mark.parametrize(("op", "measured_us"), [(NcclKind.ALL_REDUCE, 2274), (NcclKind.ALL_GATHER, 1192)])
def test_two_communicators_at_once_share_the_port(op: NcclKind, measured_us: float) -> None:
    """Calls of 256 MiB on four H200s (laboratory/rows/nccl-device-h200-x4.jsonl): together what NCCL can move, not
    more."""
    described = load_cluster("dgx-h200").network
    topology = netsim.build({"server": described["server"] | {"nvls": False}})
    net, ranks = NetsimNetworkModel(topology, PARAMS, (4,)), tuple(range(4))
    count = (1 << 27) // (4 if op == NcclKind.ALL_GATHER else 1)
    for number in (1, 2):
        net.begin(collective(op, count, ranks, number=number), 0)
    completed = []
    while len(completed) < 2:
        at_ns = net.next_ns()
        assert at_ns is not None
        completed += net.complete(at_ns)
    assert at_ns / 1000 == pytest.approx(measured_us, rel=0.03)
