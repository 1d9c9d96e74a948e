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
    """FAULT: unused; REMAP: from where; REMOVE, UNMAP: the first byte."""
    second: int
    """FAULT: the address; REMAP: to where; REMOVE, UNMAP: behind the last byte."""
    nbytes: int
    """REMAP."""


class Faults:
    """Of one process. `descriptor`: made by it; it does not block."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def read(self) -> list[Event]:
        """Those that wait."""
        try:
            data = os.read(self.descriptor, 64 * _MESSAGE.size)
        except BlockingIOError:
            return []
        return [Event(*fields) for fields in _MESSAGE.iter_unpack(data)]

    def register(self, start: int, nbytes: int) -> bool:
        """Faults of these pages are told. False if they are not there."""
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
        """Of a page without values. Raises Changing."""
        failed, _ = self._call(_ZEROPAGE, page, PAGE, 0, 0)
        if failed:
            self._passed(failed, page)

    def _passed(self, failed: int, page: int) -> bool:
        """Can the pages behind this one be filled?"""
        if failed == errno.EAGAIN:
            raise Changing
        if failed in _GONE:
            return False
        if failed != errno.EEXIST:
            raise OSError(failed, os.strerror(failed))
        self._call(_WAKE, page, PAGE)
        return True

    def _call(self, request: int, *arguments: int) -> tuple[int, list[int]]:
        """The error's number, or 0, and the arguments afterwards."""
        given = (ctypes.c_uint64 * len(arguments))(*arguments)
        failed = ctypes.get_errno() if _libc.ioctl(self.descriptor, request, given) else 0
        return failed, list(given)
