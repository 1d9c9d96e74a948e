"""What NCCL takes of a GPU's memory: the sizes that two H200s showed, and what its source says of more."""

from __future__ import annotations

from pathlib import Path

import pytest

import netsim
from netsim.collectives import CommunicatorMemory, communicator_memory, load_params
from netsim.collectives.settings import read

HOPPER = load_params("hopper")
DGX = Path(__file__).parents[3] / "profiles" / "clusters" / "dgx-h100.toml"
MIB = 1 << 20


def _memory(gpus: list[tuple[int, int]], place: int = 0, servers: int = 1, **variables: str) -> CommunicatorMemory:
    settings = read({f"NCCL_{name}": value for name, value in variables.items()}, nics=8).settings
    topology = netsim.load(DGX, servers, settings.traffic_rules(8))
    members = tuple(topology.gpu(server, gpu) for server, gpu in gpus)
    return communicator_memory(members, place, topology, HOPPER, settings)


def _server(gpus: int, place: int = 0, **variables: str) -> CommunicatorMemory:
    return _memory([(0, gpu) for gpu in range(gpus)], place, **variables)


@pytest.mark.parametrize(
    ("variables", "alone", "two", "exchange", "send", "receive"),
    [
        ({}, 388, 484, 384, 260, 516),
        ({"MAX_NCHANNELS": "4"}, 28, 76, 48, 36, 68),
        ({"BUFFSIZE": "8388608"}, 388, 580, 512, 260, 644),
        ({"CUMEM_ENABLE": "0"}, 512, 544, 384, 608, 864),
    ],
)
def test_two_h200s_in_mib(
    variables: dict[str, str], alone: int, two: int, exchange: int, send: int, receive: int
) -> None:
    """laboratory/rows/nccl-memory-h200-x2.jsonl, where a communicator takes up to 2 MiB more."""
    one, pair = (_server(gpus, NVLS_ENABLE="0", **variables) for gpus in (1, 2))
    assert one.made == alone * MIB
    assert pair.made + pair.ring == two * MIB
    assert pair.send + pair.receive == exchange * MIB
    assert pair.made + pair.send == send * MIB
    assert pair.made + pair.receive == receive * MIB
    assert pair.tree == pair.multicast == 0


def test_a_tree_is_a_chain_that_is_used_both_ways() -> None:
    """24 channels: whoever hears from the next one needs its buffers, 10 MiB, and 2 MiB to answer the one before. The
    ring of two uses both ways already.
    """
    assert _server(8, 3, NVLS_ENABLE="0").tree == 24 * 12 * MIB
    assert _server(2, NVLS_ENABLE="0").tree == 0


def test_multicast_needs_buffers_for_each_member() -> None:
    """16 channels with 1 MiB to reduce and 1 MiB to broadcast for each of 8 members."""
    with_multicast, without = _server(8), _server(8, NVLS_ENABLE="0")
    assert with_multicast.multicast == 16 * 2 * 8 * MIB
    assert with_multicast.made - without.made == (16 + 1) * 2 * MIB
    assert with_multicast.multicast_sizes >> 30 & 1, "an all-reduce of 1 GiB"
    assert not with_multicast.multicast_sizes & 1
    assert without.multicast_sizes == without.multicast == 0


def test_connections_at_once_are_part_of_what_is_made() -> None:
    lazy, eager = _server(8), _server(8, RUNTIME_CONNECT="0")
    assert eager.made == lazy.made + lazy.ring + lazy.tree + lazy.multicast
    assert eager.ring == eager.tree == eager.multicast == 0


def test_gpus_that_exchange_through_the_host_have_no_buffers() -> None:
    assert _server(2, NVLS_ENABLE="0", P2P_DISABLE="1").ring == 0


def test_a_ring_between_servers_leaves_each_at_one_gpu() -> None:
    """One GPU a server: both ends of the 4 channels of its rail are NICs', 10 MiB each. The members near it are
    itself.
    """
    far = _memory([(server, 0) for server in range(4)], 2, servers=4)
    assert far.ring == 4 * 20 * MIB
    assert (far.first_near, far.near) == (2, 1)
    assert far.net_send == far.net_receive == 4 * 16 * (128 << 10)


def test_members_of_the_same_server_are_found_in_rank_order() -> None:
    gpus = [(server, gpu) for server in range(2) for gpu in (0, 4)]
    assert [(it.first_near, it.near) for it in (_memory(gpus, place, 2) for place in (1, 2))] == [(0, 2), (2, 2)]
