"""Taking in connections at a listening socket, so that no number of them ends the run or takes its processor: only some
at once, slower when many wait, and not at all for a while when this process cannot open another file.

asyncio's servers take in what comes, and uvloop's end for good at the first error.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Protocol

AT_ONCE = 8
"""So many connections are taken in one after the other."""
PAUSE_S = 0.02
"""Before the next ones, if there is a crowd: 400 TLS handshakes a second take a quarter of a core."""
WITHOUT_FILES_S = 0.5
"""How long nothing is taken in when this process cannot open another file."""
BACKLOG = 1024
MOST_VISITORS = 128
"""Connections that an entrance may hold besides the ranks'."""
WITHOUT_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Visitors(Protocol):
    """What becomes of connections."""

    def take_in(self, address: str) -> asyncio.BaseProtocol:
        """The protocol of one that has come."""

    def lost(self, protocol: asyncio.BaseProtocol, error: OSError) -> None:
        """It had gone before it had a transport."""

    def crowd(self) -> bool:
        """Are there many that nobody knows yet?"""

    def send_one_away(self) -> None:
        """One of those has to go, if there are any."""


class Entrance:
    """``open``, then ``close``. `listening` has an address; it is closed with this."""

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
        """Takes nothing in; with `for_s`, for so long."""
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
                continue  # that one has gone again
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
