"""Links that faults slow: capacities in order of time, and completions by hand."""

from __future__ import annotations

import pytest

import netsim
from emu.contract.records import NcclKind
from netsim.collectives import load_params
from phantora_async.coordinator.network_model import NetsimNetworkModel
from phantora_async.faults import parse
from phantora_async.faults.links import LinkChanges
from phantora_async.virtual_time import Collective
from phantora_async.virtual_time.facts import Comm
from profiles import load_cluster

S = 10**9
GRAPH = netsim.build(
    {
        "graph": {
            "hosts": ["a", "b"],
            "switches": ["s"],
            "link": [{"from": "a", "to": "s", "gbps": 8.0}, {"from": "s", "to": "b", "gbps": 80.0}],
        }
    },
    1,
)
"""8 Gb/s are a byte a nanosecond."""
TOPOLOGY = netsim.build(load_cluster("dgx-h200").network, servers=2)


def changes(*texts: str, since_ns: int = 0, most: int = 20) -> list[tuple[int, str, float]]:
    found = LinkChanges([parse(text) for text in texts], GRAPH, (1,), since_ns)
    taken = []
    while found.first_ns < 1 << 62 and len(taken) < most:
        change = found.take()
        taken.append((change.at_ns, GRAPH.links[change.link].name, change.gbps))
    return taken


def test_both_directions_change_and_come_back() -> None:
    assert changes("link a-s at 0.5x from 1s until 3s") == [
        (S, "a->s", 4.0),
        (S, "s->a", 4.0),
        (3 * S, "a->s", 8.0),
        (3 * S, "s->a", 8.0),
    ]


def test_a_flap_repeats() -> None:
    assert [one[::2] for one in changes("link a->s flaps every 10s down 2s from 5s", most=5)] == [
        (5 * S, 0.0),
        (7 * S, 8.0),
        (15 * S, 0.0),
        (17 * S, 8.0),
        (25 * S, 0.0),
    ]


def test_a_flap_ends_in_its_middle() -> None:
    assert [one[::2] for one in changes("link a->s flaps every 10s down 2s until 11s")] == [
        (0, 0.0),
        (2 * S, 8.0),
        (10 * S, 0.0),
        (11 * S, 8.0),
    ]


def test_faults_of_one_link_are_multiplied() -> None:
    texts = ("link a->s at 0.5x from 1s until 3s", "link a->s at 0.5x from 2s")
    assert [one[::2] for one in changes(*texts)] == [(S, 4.0), (2 * S, 2.0), (3 * S, 4.0)]


def test_instants_from_a_later_one_on() -> None:
    texts = ("link a->s at 0.5x from 1s until 3s",)
    assert [one[::2] for one in changes(*texts, since_ns=2 * S)] == [(0, 4.0), (S, 8.0)]
    assert changes(*texts, since_ns=3 * S) == []
    assert [one[::2] for one in changes("link a->s at 0.5x", since_ns=S)] == [(0, 4.0)]


# ---- in the network ------------------------------------------------------------------------------------------------


def send(nbytes: int, number: int = 0) -> Collective:
    """Returns a message from a GPU of one server to one of the other."""
    comm = Comm(1, (0, 8), (0, 0), {0: 0, 8: 1}, "test")
    return Collective(comm, number, NcclKind.SEND, 1, 0, nbytes, -1, (0, 8))


def network(*texts: str) -> NetsimNetworkModel:
    faults = LinkChanges([parse(text) for text in texts], TOPOLOGY, (8, 8))
    return NetsimNetworkModel(TOPOLOGY, load_params("hopper"), (8, 8), faults=faults)


def end_of(net: NetsimNetworkModel, sent: Collective, at_ns: int = 0) -> int:
    net.begin(sent, at_ns)
    done_ns = net.next_ns()
    assert done_ns is not None
    assert net.complete(done_ns) == [sent]
    return done_ns


NBYTES = 50 * 10**9
"""A second at 400 Gb/s."""


@pytest.mark.parametrize(
    ("fault", "longer_ns"),
    [
        ("link node000/nic0:out at 0.5x", S),
        ("link node000/nic0:out at 0.5x from 400ms until 600ms", S // 10),  # a tenth of the bytes later
        ("link node000/nic0 down from 400ms until 900ms", S // 2),
        ("link node001/nic0 down from 2s until 9s", 0),
        ("link node000/nic1 down", 0),
        # Down from 300 to 400, 600 to 700, 900 to 1000 and 1200 to 1300 ms: 1000 ms of moving end at 1400.
        ("link node000/nic0:out flaps every 300ms down 100ms from 300ms", 4 * S // 10),
    ],
)
def test_bytes_move_as_the_link_lets_them(fault: str, longer_ns: int) -> None:
    plain_ns = end_of(network(), send(NBYTES))
    # The protocol's own limit is below that of the NIC: what is not moved is counted at that rate.
    assert end_of(network(fault), send(NBYTES)) - plain_ns == pytest.approx(longer_ns, abs=plain_ns - S + 2_000_000)


def test_a_link_that_stays_down_holds_its_flow_for_ever() -> None:
    net = network("link node000/nic0:out down from 400ms", "link node000/nic1 flaps every 1s down 10ms")
    net.begin(send(NBYTES), 0)
    assert net.next_ns() is None
    assert net.next_ns() is None
    other = Collective(Comm(2, (1, 9), (1, 1), {1: 0, 9: 1}, "other"), 0, NcclKind.SEND, 1, 0, 1000, -1, (1, 9))
    net.begin(other, 5 * S + S // 2)
    done_ns = net.next_ns()
    assert done_ns is not None
    assert 0 < done_ns - (5 * S + S // 2) < S // 1000


def test_changes_pass_while_nothing_moves() -> None:
    net = network("link node000/nic0:out at 0.5x from 100ms until 200ms")
    plain_ns = end_of(network(), send(NBYTES))
    nothing = Collective(Comm(3, (0, 1), (0, 1), {0: 0, 1: 1}, "self"), 0, NcclKind.SEND, 1, 0, 8, -1, (0, 0))
    net.begin(nothing, 300_000_000)
    first_ns = net.next_ns()
    assert first_ns is not None
    assert net.complete(first_ns) == [nothing]
    net.commit(first_ns)
    assert end_of(net, send(NBYTES), first_ns) == first_ns + plain_ns


def test_late_facts_do_not_change_the_answer() -> None:
    def ends(order: tuple[int, ...]) -> dict[int, int]:
        net = network("link node000/nic0:out flaps every 300ms down 100ms from 300ms")
        sends = {
            0: (send(NBYTES // 4, 0), 0),
            1: (send(NBYTES // 4, 1), 350_000_000),
            2: (send(NBYTES // 4, 2), 420_000_000),
        }
        for number in order:
            net.begin(*sends[number])
            net.next_ns()
        found = {}
        while (at_ns := net.next_ns()) is not None:
            for done in net.complete(at_ns):
                found[done.seq] = at_ns
        return found

    assert ends((0, 1, 2)) == ends((2, 1, 0)) == ends((1, 2, 0))
    assert len(ends((0, 1, 2))) == 3


@pytest.mark.parametrize("fault", ["nic node000/nic0 dead at 1s", "gpu 0 dead at 1s", "node 1 dead at 1s"])
def test_what_dies_carries_nothing(fault: str) -> None:
    net = network(fault)
    net.begin(send(NBYTES), 0)
    assert net.next_ns() is None
    whole = network("gpu 1 dead at 1s")
    assert end_of(whole, send(NBYTES)) == end_of(network(), send(NBYTES))
