"""userfaultfd(2): what the kernel tells of a process's memory, and how its pages are filled."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
from dataclasses import dataclass

PAGE = mmap.PAGESIZE
_MESSAGE = struct.Struct("=B7x3Q")
FAULT, REMAP, REMOVE, UNMAP = 0x12, 0x14, 0x15, 0x16
_REGISTER, _WAKE, _COPY, _ZEROPAGE = 0xC020AA00, 0x8010AA02, 0xC028AA03, 0xC020AA04
_MISSING = 1
_GONE = (errno.ENOENT, errno.ESRCH)
"""The pages are not there any more, or the process."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ioctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)


class Changing(Exception):
    """The process changes its memory: an event tells how, and is to be read first."""


@dataclass(frozen=True, slots=True)
class Event:
    kind: int
    first: int
    """For FAULT unused; for REMAP the address from which pages move; for REMOVE and UNMAP the first byte."""
    second: int
    """For FAULT the address; for REMAP the address to which pages move; for REMOVE and UNMAP the end: the byte after
    the last.
    """
    nbytes: int
    """The number of bytes that move, for REMAP."""


class Faults:
    """The page faults of one process. `descriptor`: made by that process; it does not block."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def read(self) -> list[Event]:
        """Returns the events that wait."""
        try:
            data = os.read(self.descriptor, 64 * _MESSAGE.size)
        except BlockingIOError:
            return []
        return [Event(*fields) for fields in _MESSAGE.iter_unpack(data)]

    def register(self, start: int, nbytes: int) -> bool:
        """Asks the kernel to tell faults of these pages. Returns False if they are not there."""
        failed, _ = self._call(_REGISTER, start, nbytes, _MISSING, 0)
        return not failed

    def fill(self, start: int, source: int, nbytes: int) -> None:
        """Gives missing pages the bytes at the address `source` of this process; others stay. Threads that wait for
        any of them go on. Raises Changing.
        """
        done = 0
        while done < nbytes:
            failed, arguments = self._call(_COPY, start + done, source + done, nbytes - done, 0, 0)
            copied = ctypes.c_int64(arguments[4]).value
            if not failed:
                return
            if copied > 0:
                done += copied
            elif not self._passed(failed, start + done):
                return
            else:
                done += PAGE

    def fill_zeros(self, page: int) -> None:
        """Fills a page that has no values with zeros. Raises Changing."""
        failed, _ = self._call(_ZEROPAGE, page, PAGE, 0, 0)
        if failed:
            self._passed(failed, page)

    def _passed(self, failed: int, page: int) -> bool:
        """Tells whether the pages behind this one can be filled."""
        if failed == errno.EAGAIN:
            raise Changing
        if failed in _GONE:
            return False
        if failed != errno.EEXIST:
            raise OSError(failed, os.strerror(failed))
        self._call(_WAKE, page, PAGE)
        return True

    def _call(self, request: int, *arguments: int) -> tuple[int, list[int]]:
        """Returns the error's number, or 0, and the arguments after the call."""
        given = (ctypes.c_uint64 * len(arguments))(*arguments)
        failed = ctypes.get_errno() if _libc.ioctl(self.descriptor, request, given) else 0
        return failed, list(given)
