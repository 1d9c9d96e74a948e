"""Values of large tensors that every rank of the run maps copy-on-write.

The first rank that needs values computes them and publishes them; a key names everything that they follow from. All
ranks map what was published: a rank that writes to its tensor gets a page of its own, and nobody else sees it.

Values are in memory while there is room, else in files of the run's folder, which the kernel can write to the disk.
They are freed when all ranks have had them and nobody maps them any more, and before that if memory is short (see
`emu.keeping`).
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import hashlib
import os
import tempfile
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..keeping.client import Client, Piece
from . import machine, pages
from .pages import Block

LEAST_NBYTES = 1 << 20
"""The fewest bytes of a tensor that is shared: smaller ones are computed by each rank, as their pages are few."""


Name = Callable[[int, int, bytes], None]
"""See Hook.name_host."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a block's bytes: bytes of the store, or of a file that the program has mapped."""

    name: str
    """A name that tells these bytes from all others of this run."""


@dataclass(frozen=True, slots=True)
class UserFile:
    """A file that the program has mapped, from its beginning."""

    path: str
    identity: str
    """The file's identity: other than before if the file has been written to."""


@dataclass(frozen=True, slots=True)
class _Mapped:
    """A block of this process that has been filled."""

    block: Block
    owner: weakref.ref[Any]
    """The torch.UntypedStorage whose memory it is."""
    base: int
    """The storage's address."""
    published: int | UserFile
    """The number of a piece, or a file of the user's."""


class Store:
    def __init__(
        self, client: Client, folder: Path, processes: int, own_work: AbstractContextManager[None], name: Name
    ) -> None:
        """Called in the forker. `folder`: of locks, which is made. `processes`: how many will map the same values.
        `own_work` surrounds what is done when a storage is freed; `name` tells the hook library what is mapped
        where.
        """
        folder.mkdir(exist_ok=True)
        self._client = client
        self._folder = folder
        self._processes = processes
        self._own_work = own_work
        self._name = name
        self._mapped: dict[int, _Mapped] = {}
        """The blocks of this process that have been filled, by address."""

    def fill(self, key: str, block: Block, owner: Any, compute: Callable[[], bytes]) -> bytes:
        """Gives the block, which is memory of the storage `owner`, the values of this key. `compute` writes them to the
        block, if no process has done so before; what it returns is kept with them, and returned.
        """
        name = f"{hashlib.blake2b(key.encode(), digest_size=20).hexdigest()}-{block.phase}"
        with open(self._folder / f"{name}.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = False
            with contextlib.suppress(OSError):
                found = self._client.get(name)
                if found is not None:
                    known = True
                    self._map(found, block, owner)
                    return base64.b64decode(found.rest)
            rest = compute()
            self.forget(block)
            if not known:
                with contextlib.suppress(OSError):  # no room, for example: this process keeps pages of its own
                    made = self._publish(name, block, rest)
                    if made is not None:
                        self._map(made, block, owner)
        return rest

    def origin(self, block: Block) -> Origin | None:
        """Returns where the store has the block's bytes; None if it does not, or if this process has written to
        them.
        """
        mapped = self._containing(block)
        if mapped is None or block.nbytes < LEAST_NBYTES or pages.written(pages.whole_pages(block)):
            return None
        within = block.address - mapped.block.address
        if isinstance(mapped.published, UserFile):
            file, offset = mapped.published, within
            if identity(file.path) != file.identity:
                return None
            name, descriptor = file.identity, os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        else:
            offset = mapped.block.phase + within
            piece = None
            with contextlib.suppress(OSError):
                piece = self._client.look(mapped.published)
            if piece is None:  # dropped while memory was short: another rank may have published it anew
                return None
            name, descriptor = str(piece.number), piece.descriptor
        try:
            for edge in block.edges:
                if os.pread(descriptor, edge.nbytes, offset + edge.address - block.address) != edge.memory():
                    return None
        finally:
            os.close(descriptor)
        return Origin(f"{name} {within} {block.nbytes}")

    def copy(self, block: Block, owner: Any, source: Block) -> bool:
        """Gives the block the bytes of another one, of equal phase, that has an `origin`; returns False if it has
        none.
        """
        mapped = self._containing(source)
        if mapped is None or mapped.block != source or block.phase != source.phase:
            return False
        if isinstance(mapped.published, UserFile) or self.origin(source) is None:
            return False
        piece = self._client.again(mapped.published)
        if piece is None:
            return False
        self._map(piece, block, owner)
        return True

    def forget(self, block: Block) -> None:
        """Forgets a block whose pages have been replaced."""
        for mapped in list(self._overlapping(block)):
            self._drop(mapped)

    def note_file(self, block: Block, owner: Any, path: str) -> None:
        """Notes that the program has mapped a file copy-on-write: the block, which is memory of the storage `owner`."""
        self._note(block, owner, UserFile(path, identity(path)))

    def has_blocks(self) -> bool:
        """Tells whether this process has any block with an `origin`."""
        return bool(self._mapped)

    # ---- blocks of this process ------------------------------------------------------------------------------------

    def _map(self, piece: Piece, block: Block, owner: Any) -> None:
        """Maps the piece to the block and closes the piece's descriptor. Raises OSError, and then holds the piece no
        more.
        """
        try:
            if piece.nbytes < block.phase + block.nbytes:
                raise OSError(errno.EIO, "a shared piece is too short")
            pages.map_file(piece.descriptor, block.phase, block)
        except OSError:
            self._client.release(piece.number)
            raise
        finally:
            os.close(piece.descriptor)
        self._note(block, owner, piece.number)

    def _note(self, block: Block, owner: Any, published: int | UserFile) -> None:
        self.forget(block)
        mapped = _Mapped(block, weakref.ref(owner, lambda _: self._end(mapped)), owner.data_ptr(), published)
        self._mapped[block.address] = mapped
        if not isinstance(published, UserFile):
            digest = hashlib.blake2b(f"{published} {block.nbytes}".encode(), digest_size=16).digest()
            self._name(block.address, block.nbytes, digest)

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
        """Forgets a block whose storage has been freed."""
        with self._own_work:
            self._drop(mapped)

    def _drop(self, mapped: _Mapped) -> None:
        address, published = mapped.block.address, mapped.published
        if self._mapped.get(address) is not mapped or self._mapped.pop(address, None) is None:
            return
        self._name(address, mapped.block.nbytes, bytes(16))
        if not isinstance(published, UserFile):
            with contextlib.suppress(OSError):
                self._client.release(published)

    # ---- publishing ------------------------------------------------------------------------------------------------

    def _publish(self, name: str, block: Block, rest: bytes) -> Piece | None:
        """Publishes the block's bytes. The block begins in its piece where it begins in its page. Raises OSError."""
        nbytes = block.phase + block.nbytes
        in_memory = self._make_room(nbytes)
        descriptor = os.memfd_create("phantora", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING) if in_memory else -1
        if descriptor < 0:
            descriptor = self._make_file(nbytes)
        try:
            left, at = block.memory(), block.phase
            while left:
                done = os.pwrite(descriptor, left, at)
                left, at = left[done:], at + done
            kept = base64.b64encode(rest).decode()
            return self._client.put(name, kept, self._processes, descriptor, file=not in_memory)
        finally:
            os.close(descriptor)

    def _make_file(self, nbytes: int) -> int:
        """Makes a file without a name, of which the keeper makes a copy."""
        if not machine.disk_has_room_for(2 * nbytes, self._folder):
            raise OSError(errno.ENOSPC, "the disk is nearly full", str(self._folder))
        descriptor, path = tempfile.mkstemp(dir=self._folder)
        os.unlink(path)
        try:
            os.posix_fallocate(descriptor, 0, nbytes)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _make_room(self, nbytes: int) -> bool:
        """Makes room in memory; frees what nobody maps, if that is needed. Returns False if there is no room."""
        while not machine.room_for(nbytes):
            if not self._client.drop_one():
                return False
        return True


def identity(path: str | int) -> str:
    """Returns a text that identifies a file's content, as far as its times and its size tell."""
    status = os.stat(path)
    return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
