"""The connection of one rank: bytes from its socket become records, encoded answers leave."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Container, Sequence
from typing import Any, Protocol, cast

from emu.contract import records
from emu.contract.records import RecordError
from phantora_async.errors import ProtocolError

MOST_HELLO_NBYTES = 4096
_HEADER_NBYTES = records.nbytes_of(b"")
_CREDENTIALS = struct.Struct("3i")
"""struct ucred: process id, user id, group id."""


class Receiver(Protocol):
    """Receives the records of channels. An exception that one of these methods raises is passed to ``failed``."""

    def connected(self, channel: Channel) -> None:
        """Handles a new channel, whose ``hello`` has arrived and says which rank it belongs to."""

    def received(self, channel: Channel, arrived: list[Any], nbytes: int) -> None:
        """Handles records of one rank in their order, HELLO among them; ``nbytes`` is their size on the wire."""

    def closed(self, channel: Channel) -> None:
        """Handles the end of the connection: the process will send nothing more."""

    def failed(self, error: Exception) -> None:
        """Handles an error after which the run cannot continue: a RunFailure, or a bug."""


class Channel(asyncio.Protocol):
    """One connection. ``rank`` is -1 until HELLO has arrived."""

    def __init__(self, receiver: Receiver, pid: int = 0, ranks: Container[int] | None = None) -> None:
        """`pid`: the rank's process, if it is on another machine; `ranks`: the ranks on that machine."""
        self._receiver = receiver
        self._ranks = ranks
        self._transport: asyncio.Transport | None = None
        self._incomplete = bytearray()
        """The beginning of a record whose end has not arrived."""
        self._needed = 0
        """The size of that record in bytes, as far as it is known: nothing is decoded before."""
        self.rank = -1
        self.pid = pid
        """The rank's process id as this process sees it. HELLO has the id inside the rank's own pid namespace."""
        self.hello: records.Hello
        """The first record."""
        self.of_rank: Sequence[Channel] = ()
        """All processes of its rank: the rank does not end with this one if another one goes on."""
        self.said_bye = False
        self.open = True
        self._unwanted = False
        self.paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit from asyncio.Transport
        if self._unwanted:
            self._transport.close()
        if self.pid:
            return
        peer = transport.get_extra_info("socket")
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid, _, _ = _CREDENTIALS.unpack(credentials)

    def data_received(self, data: bytes) -> None:
        stream = data
        if self._incomplete:
            self._incomplete += data
            if len(self._incomplete) < self._needed:
                return
            stream = bytes(self._incomplete)
        if self.rank < 0 and len(stream) >= _HEADER_NBYTES and not _begins_with_hello(stream):
            self._refuse(ProtocolError(-1, "something else than HELLO", self.pid))
            return
        malformed: RecordError | None = None
        try:
            arrived, used = records.decode_up(stream)
        except RecordError as error:
            malformed, arrived, used = error, list(error.before), len(stream)
        self._incomplete = bytearray(stream[used:])
        self._needed = records.nbytes_of(self._incomplete)
        try:
            if arrived:
                if self.rank < 0:
                    self._introduce(arrived[0])
                if len(self.of_rank) > 1:
                    arrived = self._without_bye(arrived)
                self._receiver.received(self, arrived, used)
            if malformed is not None:
                raise ProtocolError(self.rank, str(malformed))
        except Exception as error:
            self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        """Passes on an error that ends the run. Nothing more is read, but the connection stays open: a rank ends when
        its connection closes, and its end would hide the reason.
        """
        self.pause()
        self._receiver.failed(error)

    def _without_bye(self, arrived: list[Any]) -> list[Any]:
        """The records without BYE if another process of the rank goes on after this one; else unchanged."""
        kept = [record for record in arrived if record.kind != records.BYE]
        self.said_bye = self.said_bye or len(kept) < len(arrived)
        goes_on = any(other.open and not other.said_bye for other in self.of_rank)
        return kept if goes_on else arrived

    def _introduce(self, first: Any) -> None:
        """Checks `first`, a HELLO. Raises ProtocolError unless it is of this version, and of a rank that may be
        there.
        """
        if first.version != records.VERSION:
            raise ProtocolError(
                first.rank,
                f"it uses version {first.version} of the records and this coordinator version {records.VERSION}; "
                "the hook library and the Python package are of different builds",
            )
        if self._ranks is not None and first.rank not in self._ranks:
            raise ProtocolError(first.rank, "it is not one of the ranks of the machine that sent it")
        self.hello = first
        self._receiver.connected(self)
        self.rank = first.rank

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Handles the end of the connection. A killed rank may leave an incomplete record; the server that watches the
        process reports its death.
        """
        self.open = False
        if self.rank >= 0:
            self._receiver.closed(self)

    def send(self, encoded: bytes) -> None:
        """Sends whole records; drops them if the rank has gone."""
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
        self._unwanted = True
        if self._transport is not None:
            self._transport.close()


def _begins_with_hello(stream: bytes | bytearray) -> bool:
    """Checks that the bytes begin with a small HELLO, before the whole record has come: a process that has not said
    which rank it is cannot fill the memory.
    """
    kind = int.from_bytes(stream[:2], "little")
    return kind == records.HELLO and records.nbytes_of(stream) <= MOST_HELLO_NBYTES
