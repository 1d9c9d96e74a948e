"""Accepts connections at a listening socket so that no number of them ends the run or takes its processor: only a few
at once, more slowly when many wait, and none for a while when this process cannot open another file.

asyncio's own servers accept whatever comes, and uvloop's stop for good at the first error.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Protocol

AT_ONCE = 8
"""Connections that are accepted one after the other before a pause."""
PAUSE_S = 0.02
"""The pause in seconds before the next ones are accepted, if there is a crowd: 400 TLS handshakes a second take a
quarter of a core.
"""
WITHOUT_FILES_S = 0.5
"""The seconds for which nothing is accepted when this process cannot open another file."""
BACKLOG = 1024
MOST_VISITORS = 128
"""Connections that an entrance may hold besides the ranks'."""
WITHOUT_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Visitors(Protocol):
    """The owner of the accepted connections: it gives each its protocol and decides which one has to go."""

    def take_in(self, address: str) -> asyncio.BaseProtocol:
        """The protocol for a new connection from this address."""

    def lost(self, protocol: asyncio.BaseProtocol, error: OSError) -> None:
        """Reports that the connection of this protocol was lost before it had a transport."""

    def crowd(self) -> bool:
        """Returns true if many connections have not yet said who they are."""

    def send_one_away(self) -> None:
        """Closes one of the connections that have not yet said who they are, if there are any."""


class Entrance:
    """Accepts connections from ``open`` until ``close``. `listening` is bound to an address; ``close`` closes it."""

    def __init__(self, listening: socket.socket, visitors: Visitors) -> None:
        self._listening = listening
        self._visitors = visitors
        self._tasks: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        self._closed = False
        listening.setblocking(False)

    def open(self) -> None:
        self._again = None
        asyncio.get_running_loop().add_reader(self._listening.fileno(), self._take_in)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._rest()
        self._listening.close()
        for task in self._tasks:
            task.cancel()

    def _rest(self, for_s: float | None = None) -> None:
        """Stops accepting connections; with `for_s`, only for so many seconds."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listening.fileno())
        if self._again is not None:
            self._again.cancel()
        self._again = None if for_s is None else loop.call_later(for_s, self.open)

    def _take_in(self) -> None:
        for _ in range(AT_ONCE):
            try:
                end, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in WITHOUT_FILES:
                    self._visitors.send_one_away()
                    self._rest(WITHOUT_FILES_S)
                    return
                continue  # the one that knocked has gone again
            address = str(peer[0]) if isinstance(peer, tuple) else ""
            task = asyncio.create_task(self._begin(end, self._visitors.take_in(address)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._visitors.crowd():
            self._rest(PAUSE_S)

    async def _begin(self, end: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        end.setblocking(False)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, end)
        except OSError as error:
            end.close()
            self._visitors.lost(protocol, error)
