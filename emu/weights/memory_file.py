"""A file in memory that all ranks of a run inherit: a rank that maps a part of it keeps this part from being freed.

Every process that maps a part holds a read lock on it. A part on which nobody holds a lock can be freed. The locks
belong to an open file of the process; the kernel releases them when the process and the children that it has forked
have ended.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

_LOCK = struct.Struct("hh4xqqi4x")
"""struct flock: type, whence, start, length, process."""
_SET_LOCK = 37
"""F_OFD_SETLK."""
_PUNCH_HOLE, _KEEP_SIZE = 2, 1
_DESCRIPTORS_FROM = 700
"""Above the descriptors that programs choose."""
_PAGE = 4096
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)


@dataclass(frozen=True, slots=True)
class Part:
    """Of the file."""

    offset: int
    nbytes: int


class MemoryFile:
    def __init__(self, counter: Path) -> None:
        """In the forker. `counter`: a file that says how much has been given out."""
        self._counter = counter
        counter.write_text("0")
        descriptor = os.memfd_create("phantora-weights")
        self._descriptor = _above(descriptor, _DESCRIPTORS_FROM)
        self._identity = _identity(self._descriptor)
        self._pid = 0
        self._opened = -1
        """The file as this process has opened it, for its locks."""
        self._held: Counter[Part] = Counter()
        self._kept: set[Part] = set()
        """A child shares the lock of these: they are held until this process and the child have ended."""
        self._threads = threading.RLock()
        """A storage may be freed while this thread holds or releases another part."""
        os.register_at_fork(before=self._before_fork, after_in_child=self._after_fork)

    def allocate(self, nbytes: int) -> Part:
        """A new part, held by this process."""
        whole = -(-nbytes // _PAGE) * _PAGE
        with open(self._counter, "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            part = Part(int(file.read()), whole)
            file.seek(0)
            file.write(str(part.offset + whole))
        self.hold(part)
        return part

    def hold(self, part: Part) -> bool:
        """Keeps the part from being freed; False if it is being freed."""
        with self._threads:
            descriptor = self.descriptor()
            if not self._held[part] and not _lock(descriptor, fcntl.F_RDLCK, part):
                return False
            self._held[part] += 1
            return True

    def release(self, part: Part) -> bool:
        """Takes one `hold` back. True if this process does not hold the part any more."""
        with self._threads:
            if self._pid != os.getpid() or not self._held[part]:
                return False  # in a child: its parent held it
            self._held[part] -= 1
            if self._held[part] or part in self._kept:
                return False
            del self._held[part]
            _lock(self._opened, fcntl.F_UNLCK, part)
            return True

    def claim(self, part: Part) -> bool:
        """Before `free`: nobody holds the part, and nobody can from now on."""
        with self._threads:
            unused = not self._held[part] and part not in self._kept
            return unused and _lock(self.descriptor(), fcntl.F_WRLCK, part)

    def free(self, part: Part) -> None:
        """The part's memory goes back to the kernel."""
        descriptor = self.descriptor()
        _libc.fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, part.offset, part.nbytes)
        _lock(descriptor, fcntl.F_UNLCK, part)

    def descriptor(self) -> int:
        """Of this process. Raises OSError if the program has closed it."""
        if self._pid != os.getpid():
            if _identity(self._descriptor) != self._identity:
                raise OSError(errno.EBADF, "the program has closed the file of shared weights")
            opened = os.open(f"/proc/self/fd/{self._descriptor}", os.O_RDWR | os.O_CLOEXEC)
            self._opened = _above(opened, _DESCRIPTORS_FROM)
            self._pid = os.getpid()
            self._held.clear()
            self._kept.clear()
        elif _identity(self._opened) != self._identity:
            raise OSError(errno.EBADF, "the program has closed the file of shared weights")
        return self._opened

    def inherited_descriptor(self, above: int) -> int:
        """For a process that gives its descriptors other numbers: the one it must not close, moved above a number."""
        self._descriptor = fcntl.fcntl(self._descriptor, fcntl.F_DUPFD_CLOEXEC, max(above, _DESCRIPTORS_FROM))
        return self._descriptor

    def _before_fork(self) -> None:
        if self._pid == os.getpid():
            self._kept.update(self._held)

    def _after_fork(self) -> None:
        self._threads = threading.RLock()  # another thread of the parent may have had it


def _above(descriptor: int, least: int) -> int:
    """The descriptor with a number from `least` on, if this process may have as many."""
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, least)
    except OSError:
        return descriptor
    os.close(descriptor)
    return moved


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _lock(descriptor: int, kind: int, part: Part) -> bool:
    """False if another open file has a lock that forbids this one."""
    try:
        fcntl.fcntl(descriptor, _SET_LOCK, _LOCK.pack(kind, os.SEEK_SET, part.offset, part.nbytes, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True
