"""Collectives that run at the same instants: few flows carry the data of all."""

from __future__ import annotations

from typing import Any

import pytest

import netsim
from emu.contract.records import NcclKind
from netsim.collectives import load_params
from phantora_async.coordinator.network_model import NetsimNetworkModel
from phantora_async.errors import NotFoldable
from phantora_async.virtual_time import Collective
from phantora_async.virtual_time.facts import Comm
from profiles import load_cluster

BF16 = 9
COUNT = 1 << 22


class Machine:
    """Servers of eight GPUs. The first half of the servers sends to the second half."""

    def __init__(self, servers: int, monkeypatch: pytest.MonkeyPatch) -> None:
        topology = netsim.build(load_cluster("dgx-h200").network, servers=servers)
        self.network = NetsimNetworkModel(topology, load_params("hopper"), (8,) * servers)
        self.far = servers // 2 * 8
        self.flows = 0
        add = netsim.Network.add

        def counted(network: netsim.Network, *arguments: Any, **options: Any) -> Any:
            self.flows += 1
            return add(network, *arguments, **options)

        monkeypatch.setattr(netsim.Network, "add", counted)

    def send(self, rank: int, offsets: tuple[int, ...] = (0,)) -> Collective:
        ranks = rank, rank + self.far
        comm = Comm(rank + 1, ranks, (rank % 8,) * 2, {one: at for at, one in enumerate(ranks)}, "test")
        return Collective(comm, 0, NcclKind.SEND, BF16, 0, COUNT, -1, ranks, offsets=offsets)

    def done(self, *sends: Collective) -> list[int]:
        """Returns when each message is complete; all begin at once."""
        done: dict[Collective, int] = {}
        for send in sends:
            self.network.begin(send, 0)
        while (at_ns := self.network.next_ns()) is not None:
            done.update(dict.fromkeys(self.network.complete(at_ns), at_ns))
        last_ns = max(done.values()) + 1
        assert self.network.complete(last_ns) == []
        self.network.commit(last_ns)
        return [done[send] for send in sends]


def replicas(servers: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], int, Machine]:
    """When a message and its replicas are complete, each sent by itself; when they are as one; the machine of that."""
    alone = Machine(servers, monkeypatch)
    offsets = tuple(range(0, alone.far, 8))
    instants = alone.done(*(alone.send(offset) for offset in offsets))
    together = Machine(servers, monkeypatch)
    (done_ns,) = together.done(together.send(0, offsets))
    return instants, done_ns, together


@pytest.mark.parametrize("servers", [8, 32])
def test_replicas_of_a_message_that_share_no_link_are_one_flow(servers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    instants, done_ns, together = replicas(servers, monkeypatch)
    assert instants == [done_ns] * (servers // 2)
    assert (together.flows, together.network.replicated.apart) == (1, 0)


@pytest.mark.parametrize("servers", [128, 512])
def test_replicas_that_share_links_are_a_flow_for_each_rate(servers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Routes through the spine are chosen by a hash, so some links carry several of them."""
    instants, done_ns, together = replicas(servers, monkeypatch)
    assert done_ns == max(instants)
    assert together.network.replicated.apart == 1
    assert together.network.replicated.most_apart_ns == max(instants) - min(instants)
    assert together.flows <= 16


def test_links_carry_what_all_replicas_send(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, together = (Machine(64, monkeypatch) for _ in range(2))
    offsets = tuple(range(0, alone.far, 8))
    alone.done(*(alone.send(offset) for offset in offsets))
    together.done(together.send(0, offsets))
    traffic = [machine.network.traffic() for machine in (alone, together)]
    carried = [dict(zip(of.links, of.nbytes.sum(0), strict=True)) for of in traffic]
    assert carried[0] == carried[1]


def test_what_else_moves_on_the_links_of_one_replica_sets_it_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where replicas must be alike, each is a flow of its own, so that this is found."""
    for others in (), ((0, 40),):
        machine = Machine(8, monkeypatch)
        machine.network.replicated.must_be_alike = True
        sends = [machine.send(0, (0, 8, 16, 24))]
        for ranks in others:
            comm = Comm(99, ranks, (0, 0), {one: at for at, one in enumerate(ranks)}, "test")
            sends.append(Collective(comm, 0, NcclKind.SEND, BF16, 0, COUNT, -1, ranks))
        if others:
            with pytest.raises(NotFoldable, match="collectives of replicas end"):
                machine.done(*sends)
        else:
            machine.done(*sends)
            assert machine.flows == 4
