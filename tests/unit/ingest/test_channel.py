"""A rank's bytes become records, in whatever pieces they arrive."""

from __future__ import annotations

from typing import Any

import pytest

from emu.contract import records
from phantora_async.ingest import channel as channel_module
from phantora_async.ingest.channel import Channel

HELLO = records.Hello.encode(0, records.VERSION, 0, 1, 0, 0, 1, 0, 0, payload=b"node000")


class Receiver:
    def __init__(self) -> None:
        self.arrived: list[Any] = []
        self.errors: list[Exception] = []

    def connected(self, channel: Channel) -> None:
        pass

    def received(self, rank: int, arrived: list[Any], nbytes: int) -> None:
        self.arrived += arrived

    def closed(self, rank: int) -> None:
        pass

    def failed(self, error: Exception) -> None:
        self.errors.append(error)


@pytest.mark.parametrize("piece", [1, 7, 16, 100, 10_000])
def test_pieces_make_no_difference(piece: int) -> None:
    receiver = Receiver()
    channel = Channel(receiver)
    data = records.NcclData.encode(0, 1, 2, 3, 4, 0, payload=bytes(range(200)))
    stream = HELLO + data + records.HostAdvance.encode(5) + data
    for begin in range(0, len(stream), piece):
        channel.data_received(stream[begin : begin + piece])
    assert receiver.errors == []
    kinds = [record.kind for record in receiver.arrived]
    assert kinds == [records.HELLO, records.NCCL_DATA, records.HOST_ADVANCE, records.NCCL_DATA]
    assert receiver.arrived[1].payload == bytes(range(200))


def test_a_large_record_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not again with each piece of it: 300 MB in pieces of 256 KiB would be decoded, and copied, 1,200 times."""
    decoded: list[int] = []
    real = records.decode_up

    def decode_up(data: bytes) -> Any:
        decoded.append(len(data))
        return real(data)

    monkeypatch.setattr(channel_module.records, "decode_up", decode_up)
    receiver = Receiver()
    channel = Channel(receiver)
    channel.data_received(HELLO)
    large = records.NcclData.encode(0, 1, 2, 3, 4, 0, payload=bytes(1 << 20))
    for begin in range(0, len(large), 1000):
        channel.data_received(large[begin : begin + 1000])
    assert receiver.arrived[-1].kind == records.NCCL_DATA
    assert len(decoded) == 3
    assert sum(decoded) < 2 * len(large)
