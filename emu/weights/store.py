"""Values of large tensors, in files that every rank of the run maps copy-on-write.

A file is written by the first rank that needs it, under a lock; its name is a hash of everything that the values follow
from. Afterwards its pages are in memory once, whatever the number of ranks: a rank that writes to its tensor gets a
page of its own, and nobody else sees it. The files are in the run's folder and end with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LEAST_NBYTES = 1 << 20
"""Smaller tensors are computed by each rank: their pages are few."""
_MAP_FIXED = 0x10
_MAP_PRIVATE = 0x02
_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Block:
    """The bytes of a tensor that lie one after another."""

    address: int
    nbytes: int

    @property
    def phase(self) -> int:
        """Where in its first page it begins: pages can only be shared between blocks that agree in this."""
        return self.address % mmap.PAGESIZE


class Store:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder

    def fill(self, key: str, block: Block, compute: Callable[[], bytes]) -> bytes:
        """Gives the block the values of this key. `compute` writes them to the block, if no rank has done so before;
        what it returns is kept with them, and returned.
        """
        path = self._folder / f"{key}-{block.phase}"
        with open(f"{path}.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                rest = compute()
                with contextlib.suppress(OSError):  # the disk is full, for example: the rank keeps pages of its own
                    self._write(path, block, rest)
                    with open(path, "rb") as file:
                        self._map(file.fileno(), block)
                return rest
        with open(path, "rb") as file:
            rest = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, block.phase + block.nbytes)
            self._map(file.fileno(), block)
        return rest

    def _write(self, path: Path, block: Block, rest: bytes) -> None:
        """The block begins in the file where it begins in its page."""
        partial = path.with_suffix(".partial")
        with open(partial, "wb") as file:
            file.seek(block.phase)
            file.write(memoryview((ctypes.c_char * block.nbytes).from_address(block.address)))
            file.write(rest)
        partial.rename(path)

    def _map(self, descriptor: int, block: Block) -> None:
        """Whole pages are mapped in place of the block's; its edges, which share a page with others, are copied."""
        begin = -(-block.address // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (block.address + block.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        base = block.address - block.phase
        mapped = _libc.mmap(
            begin, end - begin, mmap.PROT_READ | mmap.PROT_WRITE, _MAP_PRIVATE | _MAP_FIXED, descriptor, begin - base
        )
        if mapped == _FAILED:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        for first, last in ((block.address, begin), (end, block.address + block.nbytes)):
            part = os.pread(descriptor, last - first, first - base)
            ctypes.memmove(first, part, len(part))
