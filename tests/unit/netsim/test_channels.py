"""How NCCL divides operations among channels: held beside grids in traces and lines of NCCL's log."""

from __future__ import annotations

import pytest

import netsim
from netsim.collectives import NcclSettings, buffered_send, load_params
from netsim.collectives.channels import divide, divide_transfer

MIB = 1 << 20


@pytest.mark.parametrize(
    ("op", "nbytes", "ranks", "protocol", "limit", "channels"),
    [
        # Grids of kernels in profiler traces of 2 H200.
        ("broadcast", 131072 * 4, 2, "ll", 24, 22),
        ("all_reduce", 75 * 4, 2, "ll", 24, 1),
        ("all_gather", 218112000 * 2, 2, "simple", 24, 24),
        # NCCL's log with NCCL_MAX_NCHANNELS=8 on 4 H200.
        ("all_reduce", 16384, 4, "ll", 8, 1),
        ("all_reduce", 65536, 4, "ll", 8, 4),
        ("all_gather", 65536, 4, "ll", 8, 4),
        ("broadcast", 65536, 4, "ll", 8, 4),
        ("all_reduce", 262144, 4, "ll", 8, 8),
    ],
)
def test_channels_are_nccls(op: str, nbytes: int, ranks: int, protocol: str, limit: int, channels: int) -> None:
    assert divide(op, nbytes, ranks, protocol, limit).channels == channels


@pytest.mark.parametrize("limit", [1, 2, 8, 24])
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "broadcast"])
def test_the_parts_hold_all_bytes(op: str, limit: int) -> None:
    for nbytes in (0, 1, 4096, 100_000, 3 * MIB, 1 << 30):
        for protocol in ("ll", "ll128", "simple"):
            made = divide(op, nbytes, 4, protocol, limit)
            count = -(-nbytes // 4) if op == "all_gather" else nbytes
            assert 1 <= made.channels <= limit
            assert made.channels * made.most_nbytes >= count
            assert made.most_nbytes <= count


@pytest.mark.parametrize(
    ("nbytes", "ranks", "protocol", "channels"),
    [
        (8192, 4, "ll", 1),
        (512 << 10, 4, "ll", 8),
        ((512 << 10) + 1, 4, "simple", 8),
        (64 * MIB, 4, "simple", 8),
        (256 * MIB, 4, "simple", 16),
        (64 * MIB, 2, "simple", 16),
        (64 * MIB, 32, "simple", 4),
    ],
)
def test_a_peer_gets_its_share_of_32_channels(nbytes: int, ranks: int, protocol: str, channels: int) -> None:
    made = divide_transfer(nbytes, ranks, 24, "nvlink", False, NcclSettings())
    assert (made.protocol, made.channels) == (protocol, channels)


def test_between_servers_a_peer_gets_the_channels_of_a_nic() -> None:
    assert divide_transfer(64 * MIB, 16, 16, "nvlink", True, NcclSettings()).channels == 2


@pytest.mark.parametrize(
    ("nbytes", "ranks", "buffer", "held"),
    [
        # Measured: with its receive 2 ms late, the sender's kernel ended early (held) or waited.
        (12 * MIB, 4, 4 * MIB, True),
        (16 * MIB, 2, MIB, True),
        (16 * MIB, 4, MIB, False),
        (64 * MIB, 2, MIB, False),
        (4 * MIB, 4, MIB, True),
    ],
)
def test_sends_that_fit_into_the_buffers_do_not_wait(nbytes: int, ranks: int, buffer: int, held: bool) -> None:
    topology = netsim.build({"server": {"kind": "nvswitch", "gpus": ranks, "gpu_gbps": 3200}})
    settings = NcclSettings(buffer_nbytes=buffer)
    send = buffered_send(nbytes, (0, 1), ranks, topology, load_params("hopper"), settings)
    assert (send is not None) == held
    if send is not None:
        assert send.held_nbytes <= send.room_nbytes == buffer


@pytest.mark.parametrize(
    ("nbytes", "ranks", "sender_us", "receiver_us"),
    [(65536, 4, 9.2, 9.3), (524288, 4, 12.9, 16.2), (4 * MIB, 2, 22.9, 16.6), (12 * MIB, 4, 53.7, 48.4)],
)
def test_a_late_receive_takes_what_was_measured(nbytes: int, ranks: int, sender_us: float, receiver_us: float) -> None:
    topology = netsim.build({"server": {"kind": "nvswitch", "gpus": ranks, "gpu_gbps": 3200}})
    send = buffered_send(nbytes, (0, 1), ranks, topology, load_params("hopper"), NcclSettings())
    assert send is not None
    # The measurements hold 0.75 us of events.
    assert send.sender_ns / 1000 + 0.75 == pytest.approx(sender_us, rel=0.1)
    assert send.receiver_ns / 1000 + 0.75 == pytest.approx(receiver_us, rel=0.1)
