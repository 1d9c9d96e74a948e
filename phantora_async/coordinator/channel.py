"""The connection of one rank: bytes from its socket become records, encoded answers leave."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, Protocol, cast

from emu.contract import records
from emu.contract.records import RecordError
from phantora_async.failures import ProtocolError

_CREDENTIALS = struct.Struct("3i")


class Receiver(Protocol):
    """Who takes what channels bring. Exceptions of these calls end the run through ``failed``."""

    def connected(self, channel: Channel, hello: records.Hello) -> None:
        """The first record of a new channel, which names its rank."""

    def received(self, rank: int, arrived: list[Any], nbytes: int) -> None:
        """Records, HELLO among them, in order."""

    def closed(self, rank: int) -> None:
        """The rank will send nothing more."""

    def failed(self, error: Exception) -> None:
        """The run cannot go on: a RunFailure, or a bug."""


class Channel(asyncio.Protocol):
    """``rank`` is -1 until the peer has said HELLO."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self.rank = -1
        self.pid = 0
        """The rank's process as this one sees it; what HELLO says is its number in its own namespace."""
        self.paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        peer = transport.get_extra_info("socket")
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid = int(_CREDENTIALS.unpack(credentials)[0])

    def data_received(self, data: bytes) -> None:
        stream = self._rest + data if self._rest else data
        malformed: RecordError | None = None
        try:
            arrived, used = records.decode_up(stream)
        except RecordError as error:
            malformed, arrived, used = error, list(error.before), len(stream)
        self._rest = stream[used:]
        try:
            if arrived:
                if self.rank < 0:
                    self._introduce(arrived[0])
                self._receiver.received(self.rank, arrived, used)
            if malformed is not None:
                raise ProtocolError(self.rank, str(malformed))
        except Exception as error:
            # Whatever it is, the receiver ends the run with it. Nothing more is read, but the line stays open: the rank
            # would end when it closes, and its end would hide the reason.
            self.pause()
            self._receiver.failed(error)

    def _introduce(self, first: Any) -> None:
        """Raises ProtocolError unless the first record is a HELLO of this version."""
        if first.kind != records.HELLO:
            raise ProtocolError(-1, f"a process began with {records.NAMES[first.kind]} instead of HELLO")
        if first.version != records.VERSION:
            raise ProtocolError(
                first.rank,
                f"version {first.version} of the records, this coordinator speaks version {records.VERSION}; "
                "the hook library and the Python package are of different builds",
            )
        self._receiver.connected(self, first)
        self.rank = first.rank

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """A rank that was killed may leave half a record behind; that it died is reported by whoever waits for it."""
        if self.rank >= 0:
            self._receiver.closed(self.rank)

    def send(self, encoded: bytes) -> None:
        """Whole records. What a rank that has gone would have been told is dropped."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encoded)

    def pause(self) -> None:
        """Stops reading: the rank blocks when the socket's buffer is full."""
        if not self.paused and self._transport is not None and not self._transport.is_closing():
            self.paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self.paused and self._transport is not None and not self._transport.is_closing():
            self.paused = False
            self._transport.resume_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
