"""Values of large tensors that every rank of the run maps copy-on-write.

The first rank that needs values computes them and writes them to the store; a key names everything that they follow
from. All ranks map what was written: a rank that writes to its tensor gets a page of its own, and nobody else sees it.

Values are in memory while there is room (see `memory_file`), else in files of the run's folder, which the kernel can
write to the disk. They are freed when all ranks have had them and nobody maps them any more, and before that if memory
is short.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import struct
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import machine, pages
from .memory_file import MemoryFile, Part
from .pages import Block

LEAST_NBYTES = 1 << 20
"""Smaller tensors are computed by each rank: their pages are few."""
_HEAD = struct.Struct("qqq")
"""Of an entry's file: the part of the memory file (offset -1: the entry has a file of its own), and how many bytes of
the key's `rest` follow. Each process that has mapped the values adds a byte.
"""
_LEAST_FREE = 20
"""A disk is used until a twentieth of it is left."""


Name = Callable[[int, int, bytes], None]
"""See Hook.name_host."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Values in the store."""

    path: str
    """The file that describes it. `path`.data has the values if they are not in the memory file."""
    part: Part | None
    """Of the memory file."""
    rest: bytes


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the bytes of a block are in the store."""

    path: str
    """Of a file that can be opened for reading, by this process."""
    offset: int
    name: str
    """Tells these bytes from all others of this run."""


@dataclass(frozen=True, slots=True)
class UserFile:
    """A file that the program has mapped, from its beginning."""

    path: str
    identity: str
    """Other than before if the file has been written to."""


@dataclass(frozen=True, slots=True)
class _Mapped:
    """A block of this process that has been filled."""

    block: Block
    owner: weakref.ref[Any]
    """The torch.UntypedStorage whose memory it is."""
    base: int
    """The storage's address."""
    entry: Entry | UserFile


class Store:
    def __init__(self, folder: Path, processes: int, own_work: AbstractContextManager[None], name: Name) -> None:
        """In the forker. `processes`: how many will map the same values. `own_work` surrounds what is done when a
        storage is freed; `name` tells the hook library what is mapped where.
        """
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._processes = processes
        self._own_work = own_work
        self._name = name
        self._memory = MemoryFile(folder / "next")
        self._mapped: dict[int, _Mapped] = {}
        """By address."""

    def fill(self, key: str, block: Block, owner: Any, compute: Callable[[], bytes]) -> bytes:
        """Gives the block, which is memory of the storage `owner`, the values of this key. `compute` writes them to the
        block, if no process has done so before; what it returns is kept with them, and returned.
        """
        path = f"{self._folder}/{hashlib.blake2b(key.encode(), digest_size=20).hexdigest()}-{block.phase}"
        with open(f"{path}.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            entry = _find(path)
            if entry is not None:
                with contextlib.suppress(OSError):
                    self._map(entry, block, owner)
                    return entry.rest
            rest = compute()
            self.forget(block)
            if entry is None:
                with contextlib.suppress(OSError):  # no room, for example: this process keeps pages of its own
                    self._map(self._write(path, block, rest), block, owner)
        return rest

    def origin(self, block: Block) -> Origin | None:
        """Where the store has the block's bytes; None if it does not, or if this process has written to them."""
        mapped = self._containing(block)
        if mapped is None or block.nbytes < LEAST_NBYTES:
            return None
        if pages.written(pages.whole_pages(block)):
            return None
        entry = mapped.entry
        if isinstance(entry, UserFile):
            if identity(entry.path) != entry.identity:
                return None
            (data, start), name = (entry.path, 0), entry.identity
        else:
            data, start = self._data(entry)
            name = str(entry.part.offset) if entry.part is not None else entry.path
        offset = start + mapped.block.phase + block.address - mapped.block.address
        descriptor = os.open(data, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for edge in block.edges:
                if os.pread(descriptor, edge.nbytes, offset + edge.address - block.address) != edge.memory():
                    return None
        finally:
            os.close(descriptor)
        return Origin(data, offset, f"{name} {offset - start} {block.nbytes}")

    def copy(self, block: Block, owner: Any, source: Block) -> bool:
        """Gives the block the bytes of another one, of equal phase, that has an `origin`; False if it has none."""
        mapped = self._containing(source)
        if mapped is None or mapped.block != source or block.phase != source.phase:
            return False
        if isinstance(mapped.entry, UserFile) or self.origin(source) is None:
            return False
        self._map(mapped.entry, block, owner)
        return True

    def forget(self, block: Block) -> None:
        """The block's pages have been replaced."""
        for mapped in list(self._overlapping(block)):
            self._drop(mapped)

    def note_file(self, block: Block, owner: Any, path: str) -> None:
        """The program has mapped a file copy-on-write: the block, which is memory of the storage `owner`."""
        self._note(block, owner, UserFile(path, identity(path)))

    def has_blocks(self) -> bool:
        """Has this process any block with an `origin`?"""
        return bool(self._mapped)

    def inherited_descriptor(self, above: int) -> int:
        return self._memory.inherited_descriptor(above)

    # ---- blocks of this process ------------------------------------------------------------------------------------

    def _map(self, entry: Entry, block: Block, owner: Any) -> None:
        """The caller has locked the key, or maps the entry already. Raises OSError."""
        data, start = self._data(entry)
        if entry.part is not None:
            self._memory.hold(entry.part)
        descriptor = os.open(data, os.O_RDONLY | os.O_CLOEXEC)
        try:
            pages.map_file(descriptor, start + block.phase, block)
        finally:
            os.close(descriptor)
        with open(entry.path, "ab") as file:
            file.write(b"+")
        self._note(block, owner, entry)

    def _note(self, block: Block, owner: Any, entry: Entry | UserFile) -> None:
        self.forget(block)
        mapped = _Mapped(block, weakref.ref(owner, lambda _: self._end(mapped)), owner.data_ptr(), entry)
        self._mapped[block.address] = mapped
        if isinstance(entry, Entry):
            where = str(entry.part.offset) if entry.part is not None else entry.path
            digest = hashlib.blake2b(f"{where} {block.nbytes}".encode(), digest_size=16).digest()
            self._name(block.address, block.nbytes, digest)

    def _data(self, entry: Entry) -> tuple[str, int]:
        """A file, and where in it the block's first page begins."""
        if entry.part is None:
            return f"{entry.path}.data", 0
        return f"/proc/self/fd/{self._memory.descriptor()}", entry.part.offset

    def _containing(self, block: Block) -> _Mapped | None:
        for mapped in self._overlapping(block):
            owner = mapped.owner()
            whole = mapped.block.address <= block.address and block.end <= mapped.block.end
            if owner is not None and owner.data_ptr() == mapped.base and whole:
                return mapped
        return None

    def _overlapping(self, block: Block) -> Iterator[_Mapped]:
        table = self._mapped.copy()  # other threads may change it
        addresses = sorted(table)
        for address in addresses[max(0, bisect_right(addresses, block.address) - 1) :]:
            if address >= block.end:
                break
            if table[address].block.end > block.address:
                yield table[address]

    def _end(self, mapped: _Mapped) -> None:
        """The storage has been freed."""
        with self._own_work:
            self._drop(mapped)

    def _drop(self, mapped: _Mapped) -> None:
        address, entry = mapped.block.address, mapped.entry
        if self._mapped.get(address) is not mapped or self._mapped.pop(address, None) is None:
            return
        self._name(address, mapped.block.nbytes, bytes(16))
        if isinstance(entry, UserFile) or entry.part is None:
            return
        with contextlib.suppress(OSError):
            if self._memory.release(entry.part) and self._served(entry) >= self._processes:
                self._free(entry)

    # ---- entries ---------------------------------------------------------------------------------------------------

    def _served(self, entry: Entry) -> int:
        """How many times it has been mapped."""
        return os.stat(entry.path).st_size - _HEAD.size - len(entry.rest)

    def _write(self, path: str, block: Block, rest: bytes) -> Entry:
        """The block begins in its part where it begins in its page. Raises OSError."""
        nbytes = block.phase + block.nbytes
        part = self._memory.allocate(nbytes) if self._make_room(nbytes) else None
        entry = Entry(path, part, rest)
        if part is None:
            self._make_file(f"{path}.data", nbytes)
        data, start = self._data(entry)
        descriptor = os.open(data, os.O_WRONLY | os.O_CLOEXEC)
        try:
            left, at = block.memory(), start + block.phase
            while left:
                done = os.pwrite(descriptor, left, at)
                left, at = left[done:], at + done
        finally:
            os.close(descriptor)
            if part is not None:
                self._memory.release(part)  # nobody else knows of it: this process has locked the key
        where = (part.offset, part.nbytes) if part is not None else (-1, 0)
        Path(f"{path}.partial").write_bytes(_HEAD.pack(*where, len(rest)) + rest)
        os.rename(f"{path}.partial", path)
        return entry

    def _make_file(self, path: str, nbytes: int) -> None:
        status = os.statvfs(self._folder)
        if status.f_bavail * status.f_frsize - nbytes < status.f_blocks * status.f_frsize // _LEAST_FREE:
            raise OSError(errno.ENOSPC, "the disk is nearly full", path)
        with open(path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, nbytes)

    def _make_room(self, nbytes: int) -> bool:
        """In memory. Frees what nobody maps, if that is needed."""
        if machine.room_for(nbytes):
            return True
        for name in os.listdir(self._folder):
            if name.count("-") and "." not in name:
                entry = _find(f"{self._folder}/{name}")
                if entry is not None and self._free(entry) and machine.room_for(nbytes):
                    return True
        return False

    def _free(self, entry: Entry) -> bool:
        """False if somebody maps it or is about to."""
        if entry.part is None:
            return False
        with open(f"{entry.path}.lock", "ab") as lock, contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._memory.claim(entry.part):
                Path(entry.path).unlink(missing_ok=True)
                self._memory.free(entry.part)
                return True
        return False


def identity(path: str | int) -> str:
    """Of a file's content, as far as its times and its size tell."""
    status = os.stat(path)
    return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _find(path: str) -> Entry | None:
    """None if nobody has written it, or it has been freed."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    offset, nbytes, length = _HEAD.unpack_from(data)
    return Entry(path, Part(offset, nbytes) if offset >= 0 else None, data[_HEAD.size : _HEAD.size + length])
