"""The coordinator's TCP port. Whoever can reach it can connect: a *stranger*, until TLS has proved that it holds the
run's token and it has said its opening.

Strangers have MOST_STRANGERS places and PATIENCE_S each. When all places are taken, one stranger has to go: the oldest
one of the address that has most, those of machines that have joined last. A stranger gets no answer beyond TLS's own,
and none of this reaches the run.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from typing import Protocol, cast

from phantora_async.entrance import BACKLOG, Entrance
from phantora_async.remote import keys, wire
from phantora_async.remote.sealed import Sealed

PATIENCE_S = 10.0
"""The seconds that a stranger may take."""
MOST_STRANGERS = 64
MOST_REMARKS = 5
"""The most refused connections of which the user is told one by one."""


class Passage(Protocol):
    """Takes connections of peers that hold the token."""

    def admit(self, opening: wire.Opening, address: str) -> asyncio.Protocol | None:
        """Takes the connection over; None if it has no place for it."""

    def refused(self, remark: str) -> None:
        """A connection was closed; ``remark`` is for the user."""

    def knows(self, address: str) -> bool:
        """Returns true if a machine has joined from this address."""


class Port:
    def __init__(self, token: str, passage: Passage) -> None:
        """`passage`: takes the connections. Raises EnvironmentUnusable, see ``keys.context_of``."""
        self._context = keys.context_of(token, keys.COORDINATOR)
        self._passage = passage
        self._strangers: list[_Stranger] = []
        """The oldest one first."""
        self._refused = 0
        self._entrance: Entrance | None = None
        self.address = ""
        """The address ``HOST:PORT``, once it listens."""

    async def listen(self, host: str, port: int) -> None:
        """Opens the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        listening = socket.create_server(address, family=family, backlog=BACKLOG)
        name = listening.getsockname()
        self.address = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
        self._entrance = Entrance(listening, self)
        self._entrance.open()

    def close(self) -> None:
        if self._entrance is not None:
            self._entrance.close()
        for stranger in tuple(self._strangers):
            stranger.dismiss()

    # ---- for the entrance ------------------------------------------------------------------------------------------

    def take_in(self, address: str) -> asyncio.BaseProtocol:
        stranger = _Stranger(self, address)
        stranger.connection = Sealed(self._context, stranger, server_side=True)
        self._strangers.append(stranger)
        if len(self._strangers) > MOST_STRANGERS:
            self.send_one_away()
        return stranger.connection

    def lost(self, protocol: asyncio.BaseProtocol, error: OSError) -> None:
        cast(Sealed, protocol).connection_lost(error)

    def crowd(self) -> bool:
        return len(self._strangers) >= MOST_STRANGERS // 2

    def send_one_away(self) -> None:
        if self._strangers:
            held = Counter(stranger.address for stranger in self._strangers)
            knows = self._passage.knows
            given_up = max(self._strangers, key=lambda one: (not knows(one.address), held[one.address]))
            given_up.refuse("others needed its place before it had shown that it holds the run's token")

    # ---- for the strangers -----------------------------------------------------------------------------------------

    def gone(self, stranger: _Stranger) -> None:
        if stranger in self._strangers:
            self._strangers.remove(stranger)

    def admit(self, said: bytes, address: str) -> asyncio.Protocol | None:
        opening = wire.read_opening(said)
        if opening is None:
            self.refuse(address, "it is of another version of phantora-async")
            return None
        return self._passage.admit(opening, address)

    def refuse(self, address: str, why: str) -> None:
        self._refused += 1
        if self._refused <= MOST_REMARKS:
            more = "; more of them are not shown" if self._refused == MOST_REMARKS else ""
            self._passage.refused(f"refused a connection from {address}: {why}{more}")


class _Stranger(asyncio.Protocol):
    """A connection that has not said its opening."""

    def __init__(self, port: Port, address: str) -> None:
        self._port = port
        self._said = b""
        self.over = False
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._too_late)
        self.address = address
        self.connection: Sealed | None = None

    def data_received(self, data: bytes) -> None:
        missing = wire.OPENING_NBYTES - len(self._said)
        self._said += data[:missing]
        rest = data[missing:]
        connection = self.connection
        if len(self._said) < wire.OPENING_NBYTES or self.over or connection is None:
            return
        self._leave()
        protocol = self._port.admit(self._said, self.address)
        if protocol is None:
            connection.abort()
            return
        connection.set_protocol(protocol)
        protocol.connection_made(connection)
        if rest:
            protocol.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over:
            failed = isinstance(exc, ssl.SSLError)
            self.refuse(
                "it does not hold the run's token"
                if failed
                else "it closed before it had shown that it holds the run's token"
            )

    def _too_late(self) -> None:
        self.refuse(f"it has not shown within {PATIENCE_S:g} s that it holds the run's token")

    def refuse(self, why: str) -> None:
        if not self.over:
            self._port.refuse(self.address, why)
            self.dismiss()

    def dismiss(self) -> None:
        connection = self._leave()
        if connection is not None:
            connection.abort()

    def _leave(self) -> Sealed | None:
        self.over = True
        self._timer.cancel()
        self._port.gone(self)
        connection, self.connection = self.connection, None
        return connection
