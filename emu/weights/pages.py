"""Pages of this process: maps files in their place, and tells which of them have been written."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import struct
from dataclasses import dataclass

_MAP_FIXED = 0x10
_MAP_PRIVATE = 0x02
_MAP_ANONYMOUS = 0x20
_FAILED = ctypes.c_void_p(-1).value
_ENTRY = struct.Struct("Q")
"""The layout of an entry of /proc/self/pagemap."""
_IN_MEMORY, _IN_SWAP, _OF_FILE = 63, 62, 61
"""Bits of an entry."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes of this process that lie one after another."""

    address: int
    nbytes: int

    @property
    def end(self) -> int:
        return self.address + self.nbytes

    @property
    def phase(self) -> int:
        """The offset in its first page at which the block begins: pages can only be shared between blocks that agree in
        this.
        """
        return self.address % mmap.PAGESIZE

    @property
    def first_page(self) -> int:
        """The address of the block's first whole page."""
        return -(-self.address // mmap.PAGESIZE) * mmap.PAGESIZE

    @property
    def last_page(self) -> int:
        """The address at which the block's last whole page ends."""
        return self.end // mmap.PAGESIZE * mmap.PAGESIZE

    @property
    def edges(self) -> tuple[Block, Block]:
        """The two parts of the block, at its begin and its end, that share a page with other data."""
        return Block(self.address, self.first_page - self.address), Block(self.last_page, self.end - self.last_page)

    def memory(self) -> memoryview:
        return memoryview((ctypes.c_char * self.nbytes).from_address(self.address)).cast("B")


def map_file(descriptor: int, offset: int, block: Block) -> None:
    """Gives the block the file's bytes from `offset` on, which has the block's phase. Whole pages are mapped
    copy-on-write in place of the block's; its edges are copied. Raises OSError.
    """
    _map(block, _MAP_PRIVATE, descriptor, offset + block.first_page - block.address)
    for edge in block.edges:
        part = os.pread(descriptor, edge.nbytes, offset + edge.address - block.address)
        ctypes.memmove(edge.address, part, len(part))


def map_zeros(block: Block) -> None:
    """Gives the block the kernel's page of zeros until it is written to."""
    _map(block, _MAP_PRIVATE | _MAP_ANONYMOUS, -1, 0)
    for edge in block.edges:
        ctypes.memset(edge.address, 0, edge.nbytes)


def _map(block: Block, flags: int, descriptor: int, offset: int) -> None:
    mapped = _libc.mmap(
        block.first_page,
        block.last_page - block.first_page,
        mmap.PROT_READ | mmap.PROT_WRITE,
        flags | _MAP_FIXED,
        descriptor,
        offset,
    )
    if mapped == _FAILED:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def written(block: Block) -> bool:
    """Tells whether this process has a page of its own within the block. Pages that were mapped and only read are not
    its own.
    """
    entries = _entries(block)
    bits = int.from_bytes(entries, "little")
    if not bits:
        return False
    ones = _ones(len(entries) // _ENTRY.size)
    return bool(((bits >> _IN_MEMORY) | (bits >> _IN_SWAP)) & ~(bits >> _OF_FILE) & ones)


def untouched(block: Block) -> bool:
    """Tells whether the block has no page in memory."""
    return not any(_entries(block))


def whole_pages(block: Block) -> Block:
    """Returns the block without its edges; it must have a whole page."""
    return Block(block.first_page, block.last_page - block.first_page)


def _entries(block: Block) -> bytes:
    """Reads the entries of all pages that hold bytes of the block."""
    first, last = block.address // mmap.PAGESIZE, -(-block.end // mmap.PAGESIZE)
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        return os.pread(file.fileno(), (last - first) * _ENTRY.size, first * _ENTRY.size)


@functools.lru_cache(maxsize=8)
def _ones(count: int) -> int:
    """Returns a number that has the lowest bit of each of `count` entries set."""
    return int.from_bytes(_ENTRY.pack(1) * count, "little")
