"""The coordinator's TCP port: connections that begin with the run's token are passed on, others are closed.

Whoever can reach the port can connect. A stranger gets no answer, is closed within PATIENCE_S, and holds at most one of
MOST_WAITING places meanwhile; none of this reaches the run.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from phantora_async.remote import wire

PATIENCE_S = 10.0
"""How long a connection may take to say its opening."""
MOST_WAITING = 256
"""Connections that have not said it."""
MOST_REMARKS = 5
"""Refused connections that the user is told of one by one."""


class Passage(Protocol):
    """Where connections go that know the token."""

    def admit(self, opening: wire.Opening, address: str) -> asyncio.Protocol | None:
        """Takes the connection over; None if it has no place for it."""

    def refused(self, remark: str) -> None:
        """A connection was closed; ``remark`` is for the user."""


class Port:
    def __init__(self, token: str, passage: Passage) -> None:
        self._token = token
        self._passage = passage
        self._waiting: set[_Stranger] = set()
        self._refused = 0
        self._server: asyncio.Server | None = None
        self.address = ""
        """``HOST:PORT``, once it listens."""

    async def listen(self, host: str, port: int) -> None:
        """Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Stranger(self), host, port, backlog=1024)
        name = self._server.sockets[0].getsockname()
        self.address = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for stranger in tuple(self._waiting):
            stranger.close()

    # ---- for the connections ---------------------------------------------------------------------------------------

    def arrived(self, stranger: _Stranger) -> bool:
        """False: there are too many."""
        if len(self._waiting) >= MOST_WAITING:
            self.refuse(stranger.address, "too many connections wait to be let in")
            return False
        self._waiting.add(stranger)
        return True

    def gone(self, stranger: _Stranger) -> None:
        self._waiting.discard(stranger)

    def admit(self, data: bytes, address: str) -> asyncio.Protocol | None:
        opening = wire.read_opening(data, self._token)
        if opening is None:
            self.refuse(address, "it does not know the run's token")
            return None
        return self._passage.admit(opening, address)

    def refuse(self, address: str, why: str) -> None:
        self._refused += 1
        if self._refused <= MOST_REMARKS:
            more = "; more of them are not shown" if self._refused == MOST_REMARKS else ""
            self._passage.refused(f"refused a connection from {address}: {why}{more}")


class _Stranger(asyncio.Protocol):
    """A connection that has not said its opening."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._data = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.address = "an unknown address"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self.address = str(peer[0])
        if not self._port.arrived(self):
            self._transport.abort()
            return
        wire.prepare(transport.get_extra_info("socket"))
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._too_late)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        missing = wire.NBYTES - len(self._data)
        self._data += data[:missing]
        rest = data[missing:]
        if len(self._data) < wire.NBYTES:
            return
        self._leave()
        protocol = self._port.admit(self._data, self.address)
        if protocol is None:
            self._transport.abort()
            return
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if rest:
            protocol.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._port.refuse(self.address, "it closed before it had said the run's token")
        self._leave()

    def _too_late(self) -> None:
        self._port.refuse(self.address, f"it said nothing for {PATIENCE_S:g} s")
        self.close()

    def _leave(self) -> None:
        self._port.gone(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        self._leave()
        if self._transport is not None:
            self._transport.abort()
