"""A process asks the keeper for pieces, and gives it some.

==========  ====================================  =================================================================
``do``      with                                  the keeper
==========  ====================================  =================================================================
``get``     ``key``                               gives the piece
``again``   ``number``                            gives a piece that the process holds already once more
``look``    ``number``                            gives its bytes, not to be held
``put``     ``key``, ``rest``, ``wanted``,        keeps the descriptor's bytes: sealed memory, or, if ``file``, a file
            ``file``, a descriptor                that it copies; gives the piece
``release`` ``number``                            answers nothing
``drop``    nothing                               drops a piece that nobody holds, and says which
==========  ====================================  =================================================================

Each process has a connection of its own. The keeper knows by its end that the process and its children have ended.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
LIMIT_NBYTES = 1 << 16
"""The limit of a message's length, in bytes: no message is as long."""
_DESCRIPTORS_FROM = 700
"""The lowest number of a descriptor here: above the descriptors that programs choose."""


def folder_of(runtime_dir: str) -> str:
    return os.path.join(runtime_dir, "kept")


def path_of(runtime_dir: str) -> str:
    return os.path.join(folder_of(runtime_dir), "keeper")


@dataclass(frozen=True, slots=True)
class Piece:
    number: int
    nbytes: int
    rest: str
    """A text that is kept beside the bytes."""
    descriptor: int
    """A descriptor for reading the piece's bytes; the caller closes it."""


class Client:
    """The connection to the keeper. Its calls raise OSError if the keeper cannot be asked."""

    def __init__(self, runtime_dir: str) -> None:
        self._runtime_dir = runtime_dir
        self._pid = 0
        self._end: socket.socket | None = None
        self._identity = (0, 0)
        self._held: Counter[int] = Counter()
        self._kept: set[int] = set()
        """Numbers of pieces that are held until this process and a child of it have ended, as both share the
        connection.
        """
        self._inherited: list[socket.socket] = []
        """Connections of processes that have forked this one, and hold pieces for it."""
        self._threads = threading.RLock()
        """A lock that this thread may take again: a storage may be freed while the thread asks."""
        os.register_at_fork(before=self._before_fork, after_in_child=self._after_fork)

    def get(self, key: str) -> Piece | None:
        return self._piece({"do": "get", "key": key}, holds=True)

    def again(self, number: int) -> Piece | None:
        return self._piece({"do": "again", "number": number}, holds=True)

    def look(self, number: int) -> Piece | None:
        return self._piece({"do": "look", "number": number}, holds=False)

    def put(self, key: str, rest: str, wanted: int, descriptor: int, file: bool = False) -> Piece | None:
        """Publishes the bytes. Memory is sealed by this. The piece is another rank's if that was faster; None if it
        cannot be kept.
        """
        if not file:
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
        message = {"do": "put", "key": key, "rest": rest, "wanted": wanted, "file": file}
        return self._piece(message, holds=True, sent=[descriptor])

    def release(self, number: int) -> None:
        """Takes one `get`, `again` or `put` back; later, if a child may need it."""
        with self._threads:
            if self._pid != os.getpid() or not self._held[number]:
                return  # in a child: its parent holds it
            self._held[number] -= 1
            if number not in self._kept:
                self._send({"do": "release", "number": number}, [])

    def drop_one(self) -> bool:
        """Frees the memory of a piece that nobody holds. False if there is none."""
        with self._threads:
            self._send({"do": "drop"}, [])
            return bool(self._receive()[0]["number"] >= 0)

    def _piece(self, message: dict[str, object], holds: bool, sent: list[int] | None = None) -> Piece | None:
        with self._threads:
            self._send(message, sent or [])
            said, descriptor = self._receive()
            if said["number"] < 0:
                return None
            if holds:
                self._held[said["number"]] += 1
        number, nbytes = said["number"], said["nbytes"]
        if said["file"]:
            path = os.path.join(folder_of(self._runtime_dir), str(number))
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if os.fstat(descriptor).st_size < nbytes:
            os.close(descriptor)
            raise OSError(errno.EIO, "a shared piece is too short")
        return Piece(number, nbytes, said["rest"], descriptor)

    def _send(self, message: dict[str, object], descriptors: list[int]) -> None:
        packet = json.dumps(message).encode()
        socket.send_fds(self._connected(), [packet], descriptors, socket.MSG_NOSIGNAL)

    def _receive(self) -> tuple[dict[str, Any], int]:
        packet, descriptors, _, _ = socket.recv_fds(self._connected(), LIMIT_NBYTES, 1, socket.MSG_CMSG_CLOEXEC)
        if not packet:
            raise ConnectionResetError(errno.ECONNRESET, "the keeper of shared pieces has ended")
        return json.loads(packet), descriptors[0] if descriptors else -1

    def _connected(self) -> socket.socket:
        """Returns this process's connection, a new one if the program has closed it."""
        if self._end is not None and self._pid == os.getpid() and _identity(self._end.fileno()) == self._identity:
            return self._end
        if self._end is not None:
            if self._pid == os.getpid():
                self._end.detach()  # the number is another file's now
            else:
                self._inherited.append(self._end)
        end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        end.connect(path_of(self._runtime_dir))
        self._end = socket.socket(fileno=_above(end.detach(), _DESCRIPTORS_FROM))
        self._identity = _identity(self._end.fileno())
        self._pid = os.getpid()
        self._held.clear()
        self._kept.clear()
        return self._end

    def _before_fork(self) -> None:
        if self._pid == os.getpid():
            self._kept.update(number for number, count in self._held.items() if count)

    def _after_fork(self) -> None:
        self._threads = threading.RLock()  # another thread of the parent may have had it


def _above(descriptor: int, least: int) -> int:
    """Returns the descriptor with a number from `least` on, if this process may have as many."""
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, least)
    except OSError:
        return descriptor
    os.close(descriptor)
    return moved


def _identity(descriptor: int) -> tuple[int, int]:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return -1, -1
    return status.st_dev, status.st_ino
