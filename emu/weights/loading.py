"""`torch.load` of a file: large storages are read once, and ranks share them.

Ranks map a copy of the file's bytes, not the file itself: the script may write the same file again. Files that the
program maps itself (safetensors, `torch.load(mmap=True)`) are noted, so that copies and conversions are shared, too.
"""

from __future__ import annotations

import functools
import io
import os
import zipfile
from collections.abc import Callable
from typing import Any

from ..private.changes import changes
from .pages import Block
from .store import LEAST_NBYTES, identity
from .tensors import Sharing


def install(sharing: Sharing) -> None:
    """Makes `torch.load` share storages, and notes files that the program maps. Called once, in the forker."""
    import torch

    reading = functools.partial(_reading, sharing)
    changes.install("shared checkpoints", lambda names: names.change("_open_zipfile_reader", reading))
    torch.UntypedStorage.from_file = _noting(sharing, torch.UntypedStorage.from_file)


def _reading(sharing: Sharing, reader: Any) -> Any:
    class Reader(reader):
        """Opens a checkpoint of torch.save."""

        def __init__(self, file: Any) -> None:
            super().__init__(file)
            self._phantora_file = file

        def __enter__(self) -> Any:
            records, file = super().__enter__(), self._phantora_file
            if type(file) is io.BufferedReader and type(file.raw) is io.FileIO and sharing.in_rank():
                return _Records(sharing, records, file.fileno())
            return records

    Reader.__name__ = reader.__name__
    return Reader


def _noting(sharing: Sharing, from_file: Callable[..., Any]) -> Any:
    """Makes the replacement of `UntypedStorage.from_file(filename, shared=False, nbytes=0)`, which notes the file."""

    @functools.wraps(from_file)
    def map_file(*arguments: Any, **options: Any) -> Any:
        storage = from_file(*arguments, **options)
        path = arguments[0] if arguments else options.get("filename")
        shared = arguments[1] if len(arguments) > 1 else options.get("shared", False)
        if not shared and isinstance(path, str) and storage.nbytes() >= LEAST_NBYTES and sharing.in_rank():
            with sharing.uncounted:
                sharing.store.note_file(Block(storage.data_ptr(), storage.nbytes()), storage, os.path.abspath(path))
        return storage

    return staticmethod(map_file)


class _Records:
    """A torch._C.PyTorchFileReader whose large storages come from the store."""

    def __init__(self, sharing: Sharing, records: Any, descriptor: int) -> None:
        self._sharing = sharing
        self._records = records
        self._descriptor = descriptor
        self._plain: set[str] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def get_storage_from_record(self, name: str, count: int, kind: Any) -> Any:
        """Returns a tensor that has the record's bytes. torch.load passes the number of bytes and
        torch.UntypedStorage.
        """
        import torch

        if kind is torch.UntypedStorage and count >= LEAST_NBYTES:
            with self._sharing.uncounted:
                if self._is_plain(name):
                    return self._shared(name, count)
        return self._records.get_storage_from_record(name, count, kind)

    def _is_plain(self, name: str) -> bool:
        """Tells whether the record's bytes are in the file as they are, not compressed."""
        if self._plain is None:
            self._plain = _plain_records(f"/proc/self/fd/{self._descriptor}")
        return name in self._plain

    def _shared(self, name: str, nbytes: int) -> Any:
        import torch

        begin = self._records.get_record_offset(name)
        storage: Any = torch.UntypedStorage(nbytes)
        block = Block(storage.data_ptr(), nbytes)

        def read() -> bytes:
            left, at = block.memory(), begin
            while left:
                done = os.preadv(self._descriptor, [left], at)
                if not done:
                    raise EOFError(f"{name} is not complete")
                left, at = left[done:], at + done
            return b""

        key = f"load {identity(self._descriptor)} {begin} {nbytes}"
        self._sharing.store.fill(key, block, storage, read)
        return torch.empty(0, dtype=torch.uint8).set_(storage)


def _plain_records(path: str) -> set[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (OSError, zipfile.BadZipFile):
        return set()
    stored = (entry.filename for entry in entries if entry.compress_type == zipfile.ZIP_STORED)
    return {name.partition("/")[2] for name in stored}
