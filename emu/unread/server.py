"""The process that fills pages of ranks. It runs no program of the user's and waits for no rank, so it can serve a
thread that faults whatever locks that thread holds.

A message of a rank is `_ASK` and what follows it, one a packet:

======  ==================================  =============================================================
OPEN    a descriptor of userfaultfd(2)      the process exists
GIVE    number, pages; their sources        they are missing and registered; answered with `gone` numbers
LIST    a range                             answered with what of it is missing
FORK                                        answered with a number for what is missing now, and how many
CLAIM   that number, a descriptor           a child process has inherited it
COUNT                                       answered as all others: with reads that have failed
======  ==================================  =============================================================
"""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import socket
import struct
from collections.abc import Iterator
from typing import NoReturn

from ..interpreter.hook_library import Hook, recipes
from .faults import FAULT, PAGE, REMAP, Changing, Event, Faults
from .regions import Region, Regions

SOCKET = "pages"
_ASK, _ANSWER = struct.Struct("=IIQQ"), struct.Struct("=IIQ")
_NUMBER, _PIECE = struct.Struct("=Q"), struct.Struct("=4Q")
_OPEN, _GIVE, _LIST, _FORK, _CLAIM, _COUNT = range(6)
_LIMIT_NBYTES = 1 << 18
"""The limit of a message's length, in bytes: no message is as long."""
_MOST_LISTED = _MOST_GONE = 4096
_CHUNK = 4 << 20
"""The number of bytes that are filled when one page is touched: what a GPU draws is made in pieces of that order."""


class _Content:
    """The values that a process has given."""

    def __init__(self, hook: Hook, table: bytes, nbytes: int) -> None:
        """Takes the values. Raises LookupError if they cannot be had without asking a rank."""
        self._hook = hook
        self._handle = 0
        if not _alone(hook, table):
            raise LookupError
        self._handle = hook.take_table(table, len(table))
        if not self._handle or hook.taken_nbytes(self._handle) != nbytes:
            raise LookupError

    def __del__(self) -> None:
        if self._handle:
            self._hook.taken_drop(self._handle)

    def read(self, offset: int, nbytes: int, address: int) -> bool:
        """Writes values to the address. Returns False if some of the bytes cannot be had: they are 0."""
        return bool(self._hook.taken_read_part(self._handle, offset, nbytes, address))


def _alone(hook: Hook, table: bytes) -> bool:
    """Tells whether these sources follow from what the run keeps, and from computations of it."""
    for remote, recipe in hook.table_rows(table):
        if remote or (recipe and not all(_alone(hook, told) for told, *_ in recipes.loads(recipe)[1])):
            return False
    return True


class _Process:
    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.faults: Faults | None = None
        self.regions = Regions()
        self.failed = 0
        """The number of reads since the last answer whose values could not be had."""

    def close(self) -> None:
        self.socket.close()
        if self.faults is not None:
            os.close(self.faults.descriptor)


class _Server:
    def __init__(self, listener: socket.socket, hook: Hook) -> None:
        self._listener = listener
        self._hook = hook
        self._poll = select.epoll()
        self._poll.register(listener, select.EPOLLIN)
        self._by_socket: dict[int, _Process] = {}
        self._by_faults: dict[int, _Process] = {}
        self._forks: dict[int, Regions] = {}
        self._last_fork = 0
        self._buffer = mmap.mmap(-1, _CHUNK)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))

    def serve_ready(self) -> None:
        for descriptor, _ in self._poll.poll():
            if descriptor == self._listener.fileno():
                connection, _address = self._listener.accept()
                self._by_socket[connection.fileno()] = _Process(connection)
                self._poll.register(connection, select.EPOLLIN)
            elif descriptor in self._by_faults:
                self._serve_faults(self._by_faults[descriptor])
            elif descriptor in self._by_socket:
                process = self._by_socket[descriptor]
                if not self._serve_message(process):
                    self._leave(descriptor, process)

    def _leave(self, descriptor: int, process: _Process) -> None:
        """Forgets a process that has ended, or executes another program."""
        self._poll.unregister(descriptor)
        del self._by_socket[descriptor]
        if process.faults is not None:
            self._poll.unregister(process.faults.descriptor)
            del self._by_faults[process.faults.descriptor]
        process.close()

    # ---- messages --------------------------------------------------------------------------------------------------

    def _serve_message(self, process: _Process) -> bool:
        """Answers one message. Returns False if the process has gone, or is none of ours."""
        try:
            data, descriptors, _, _ = socket.recv_fds(process.socket, _LIMIT_NBYTES, 1)
        except ConnectionError:
            return False
        if len(data) < _ASK.size:
            return False
        what, number, start, nbytes = _ASK.unpack_from(data)
        answer = _ANSWER.pack(*self._answer(process, what, number, descriptors), process.failed)
        if what == _GIVE:
            given = self._give(process, Region(start, start + nbytes, number, 0, None), data[_ASK.size :])
            gone = process.regions.gone[:_MOST_GONE]
            del process.regions.gone[:_MOST_GONE]
            answer = _ANSWER.pack(given, len(gone), process.failed) + b"".join(map(_NUMBER.pack, gone))
        elif what == _LIST:
            found = process.regions.within(start, start + nbytes)[:_MOST_LISTED]
            rows = b"".join(_PIECE.pack(r.start, r.end, r.offset, r.number) for r in found)
            answer = _ANSWER.pack(1, len(found), process.failed) + rows
        process.failed = 0
        try:
            process.socket.send(answer)
        except ConnectionError:
            return False
        return True

    def _answer(self, process: _Process, what: int, number: int, descriptors: list[int]) -> tuple[int, int]:
        if what in (_OPEN, _CLAIM) and descriptors:
            process.faults = Faults(descriptors[0])
            self._by_faults[descriptors[0]] = process
            self._poll.register(descriptors[0], select.EPOLLIN)
            if what == _CLAIM and number not in self._forks:
                return 0, 0
            if what == _CLAIM:
                process.regions = self._forks.pop(number)
                for region in process.regions.all():
                    if not process.faults.register(region.start, region.end - region.start):
                        process.regions.cut(region.start, region.end)
        elif what == _FORK:
            self._last_fork += 1
            missing = process.regions.all()
            if missing:
                self._forks[self._last_fork] = process.regions.copy()
            return self._last_fork, len(missing)
        return 1, 0

    def _give(self, process: _Process, region: Region, table: bytes) -> int:
        try:
            content = _Content(self._hook, table, region.end - region.start)
        except LookupError:
            return 0
        process.regions.put(Region(region.start, region.end, region.number, 0, content))
        return 1

    # ---- faults ----------------------------------------------------------------------------------------------------

    def _serve_faults(self, process: _Process) -> None:
        assert process.faults is not None
        waiting = [event for event in self._events(process) if event.kind == FAULT]
        while waiting:
            try:
                self._fill(process, process.faults, waiting[-1].second & -PAGE)
                waiting.pop()
            except Changing:
                waiting += [event for event in self._events(process) if event.kind == FAULT]

    def _events(self, process: _Process) -> Iterator[Event]:
        """Yields the events that wait; what they say of memory has been noted."""
        assert process.faults is not None
        for event in process.faults.read():
            if event.kind == REMAP:
                process.regions.move(event.first, event.second, event.nbytes)
            elif event.kind != FAULT:
                process.regions.cut(event.first, event.second)
            yield event

    def _fill(self, process: _Process, faults: Faults, page: int) -> None:
        """Fills the page, with what is missing around it. Raises Changing."""
        found = process.regions.within(page, page + PAGE)
        if not found:  # filled already, or memory that the program has given back meanwhile
            faults.fill_zeros(page)
            return
        low = page // _CHUNK * _CHUNK
        missing = process.regions.within(low, low + _CHUNK)
        region = next(region for region in missing if region.start <= page < region.end)
        nbytes = region.end - region.start
        if not region.content.read(region.offset, nbytes, self._address):
            process.failed += 1
        faults.fill(region.start, self._address, nbytes)
        process.regions.cut(region.start, region.end)


def serve(listener: socket.socket, hook: Hook) -> NoReturn:
    """Serves for ever. Runs in a process of its own, which ends with its parent."""
    server = _Server(listener, hook)
    while True:
        server.serve_ready()
