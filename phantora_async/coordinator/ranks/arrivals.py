"""Accepts processes that connect to the run's socket, until they have said which rank they are.

The socket is in a folder that only the user may enter, and in the servers of the run. So whoever connects is a process
of the user's, most likely a rank; but a script may connect as often as it likes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Container
from pathlib import Path
from typing import cast

from phantora_async.entrance import BACKLOG, Entrance
from phantora_async.ingest.channel import Channel, Receiver

MOST_UNKNOWN = 64
"""The most processes, besides one for each rank, that have connected and not said which rank they are."""


class Arrivals:
    """The run's socket: ``open`` and ``close`` it; ``channels`` has all that have connected. Implements the entrance's
    ``Visitors``.
    """

    def __init__(self, receiver: Receiver, path: Path, world_size: int) -> None:
        self._receiver = receiver
        self._path = path
        self._most_unknown = world_size + MOST_UNKNOWN
        self._entrance: Entrance | None = None
        self.channels: list[Channel] = []

    def open(self) -> None:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(self._path))
        listening.listen(BACKLOG)
        self._entrance = Entrance(listening, self)
        self._entrance.open()

    def close(self) -> None:
        if self._entrance is not None:
            self._entrance.close()

    def add(self, pid: int = 0, ranks: Container[int] | None = None) -> Channel:
        """See ``Channel``."""
        channel = Channel(self._receiver, pid, ranks)
        self.channels.append(channel)
        return channel

    # ---- for the entrance ------------------------------------------------------------------------------------------

    def take_in(self, address: str) -> asyncio.BaseProtocol:
        channel = self.add()
        if len(self.channels) > self._most_unknown and len(self._unknown()) > self._most_unknown:
            self.send_one_away()
        return channel

    def lost(self, protocol: asyncio.BaseProtocol, error: OSError) -> None:
        cast(Channel, protocol).connection_lost(error)

    def crowd(self) -> bool:
        return False  # one process of the user's may slow down another one anyway

    def send_one_away(self) -> None:
        for channel in self._unknown()[:1]:
            self.channels.remove(channel)
            channel.close()

    def _unknown(self) -> list[Channel]:
        self.channels = [channel for channel in self.channels if channel.open or channel.rank >= 0]
        return [channel for channel in self.channels if channel.rank < 0]
