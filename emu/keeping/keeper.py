"""The process that keeps pieces. It reads nothing of them and trusts no rank: what a rank publishes can be wrong, but
only for those who ask for that key, and only from the start.

A piece in memory is a memfd that its publisher has filled and sealed, so that not even the publisher can write to it.
A piece in a file is a copy that only this process can write to. Pieces go when as many processes as would ask for them
have had them and nobody holds them any more; and, if memory is short, when nobody holds them. A process holds what it
has got until it says otherwise or ends, and a child that it has forked has ended, too.

A message is a JSON object and at most one descriptor; `client` lists them.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import select
import socket
import stat
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ..contract.process_setup import spare_file
from .client import LIMIT_NBYTES, SEALS, folder_of, path_of

_CHUNK_NBYTES = 1 << 30


@dataclass(slots=True)
class _Piece:
    number: int
    key: str
    nbytes: int
    rest: str
    descriptor: int
    """The descriptor of the piece's memory; -1: the piece is in a file."""
    wanted: int
    """The number of times that the piece will be asked for."""
    given: int = 0
    holders: int = 0


@dataclass(slots=True)
class _Process:
    socket: socket.socket
    held: Counter[int] = field(default_factory=Counter)
    """For each piece that the process holds, by number: how many times it holds it."""


def listen(runtime_dir: str) -> socket.socket:
    """Opens the socket: ranks can connect from now on."""
    os.makedirs(folder_of(runtime_dir), exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path_of(runtime_dir))
    listener.listen(socket.SOMAXCONN)
    return listener


def raise_open_files() -> None:
    """Raises this process's limit of open files: every process of every rank connects, and every piece in memory is a
    descriptor.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def serve(listener: socket.socket, runtime_dir: str) -> NoReturn:
    """Serves the connections for ever. Runs in a process of its own, which ends with its parent."""
    keeper = _Keeper(listener, runtime_dir)
    while True:
        keeper.serve_ready()


class _Keeper:
    def __init__(self, listener: socket.socket, runtime_dir: str) -> None:
        self._folder = folder_of(runtime_dir)
        self._listener = listener
        self._poll = select.epoll()
        self._poll.register(listener, select.EPOLLIN)
        self._processes: dict[int, _Process] = {}
        self._by_key: dict[str, _Piece] = {}
        self._by_number: dict[int, _Piece] = {}
        self._next = 0
        self._spare = spare_file()

    def serve_ready(self) -> None:
        for descriptor, _ in self._poll.poll():
            if descriptor == self._listener.fileno():
                self._enter()
            else:
                self._serve(self._processes[descriptor])

    def _enter(self) -> None:
        try:
            end = self._listener.accept()[0]
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._refuse()
            return
        self._processes[end.fileno()] = _Process(end)
        self._poll.register(end, select.EPOLLIN)

    def _refuse(self) -> None:
        """Takes a connection and closes it: the rank keeps its pages to itself. A connection that nobody takes would be
        ready again at once.
        """
        os.close(self._spare)
        self._listener.accept()[0].close()
        self._spare = spare_file()

    def _serve(self, process: _Process) -> None:
        came: list[int] = []
        try:
            packet, came, _, _ = socket.recv_fds(process.socket, LIMIT_NBYTES, 1, socket.MSG_CMSG_CLOEXEC)
            if not packet:
                raise ConnectionError
            self._obey(process, json.loads(packet), came)
        except Exception:  # it has ended, or has sent what no client of ours sends
            self._leave(process)
        finally:
            for descriptor in came:
                os.close(descriptor)

    def _obey(self, process: _Process, message: dict[str, Any], came: list[int]) -> None:
        match message["do"]:
            case "get":
                self._give(process, self._by_key.get(message["key"]))
            case "again":
                self._give(process, self._by_number.get(message["number"]))
            case "look":
                piece = self._by_number.get(message["number"])
                self._answer(process, piece)
            case "put":
                self._give(process, self._put(message, came[0] if came else -1))
            case "release":
                self._release(process, int(message["number"]), 1)
            case "drop":
                unused = next((piece for piece in self._by_key.values() if not piece.holders), None)
                if unused is not None:
                    self._drop(unused)
                self._answer(process, unused, descriptor=False)

    def _give(self, process: _Process, piece: _Piece | None) -> None:
        if piece is not None:
            piece.given += 1
            piece.holders += 1
            process.held[piece.number] += 1
        self._answer(process, piece)

    def _answer(self, process: _Process, piece: _Piece | None, descriptor: bool = True) -> None:
        said: dict[str, Any] = {"number": -1}
        if piece is not None:
            said = {"number": piece.number, "nbytes": piece.nbytes, "rest": piece.rest, "file": piece.descriptor < 0}
        sent = [piece.descriptor] if piece is not None and descriptor and piece.descriptor >= 0 else []
        socket.send_fds(process.socket, [json.dumps(said).encode()], sent, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)

    def _put(self, message: dict[str, Any], descriptor: int) -> _Piece | None:
        """Keeps a piece and returns it; None if it cannot be kept. A piece that is there already stays."""
        key, rest = message["key"], message["rest"]
        if not isinstance(key, str) or not isinstance(rest, str):
            raise TypeError
        if key in self._by_key:
            return self._by_key[key]
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError
        number, kept = self._next, -1
        try:
            if message["file"]:
                self._copy(descriptor, about.st_size, f"{self._folder}/{number}")
            elif fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & SEALS == SEALS:
                kept = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 0)
            else:
                raise ValueError
        except OSError:  # the disk is full, or no descriptor is left
            return None
        self._next += 1
        piece = _Piece(number, key, about.st_size, rest, kept, int(message["wanted"]))
        self._by_key[key] = self._by_number[number] = piece
        return piece

    def _copy(self, source: int, nbytes: int, path: str) -> None:
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        try:
            at = 0
            while at < nbytes:
                done = os.sendfile(target, source, at, min(nbytes - at, _CHUNK_NBYTES))
                if not done:
                    raise OSError  # it has become shorter
                at += done
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(target)

    def _release(self, process: _Process, number: int, count: int) -> None:
        piece, count = self._by_number.get(number), min(count, process.held[number])
        process.held[number] -= count
        if piece is not None:
            piece.holders -= count
            if not piece.holders and piece.given >= piece.wanted:
                self._drop(piece)

    def _drop(self, piece: _Piece) -> None:
        del self._by_key[piece.key], self._by_number[piece.number]
        if piece.descriptor >= 0:
            os.close(piece.descriptor)
        else:
            os.unlink(f"{self._folder}/{piece.number}")

    def _leave(self, process: _Process) -> None:
        for number, count in list(process.held.items()):
            self._release(process, number, count)
        self._poll.unregister(process.socket)
        del self._processes[process.socket.fileno()]
        process.socket.close()
