"""Reads and writes the file of a recording: pieces of bytes, each stored once and compressed, then a header that says
what they are.

``MAGIC``, pieces, header, trailer. A reader trusts nothing: every size is checked before it is used, and every piece
and the header have a digest of their bytes in the file.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson
import psutil

from emu.contract import records
from formats.files import for_user_alone, read_bytes
from phantora_async.errors import UsageError

FORMAT = 4
"""The format's number; files of another one are refused."""
PARTIAL = ".recording"
"""The name of the file until it is complete."""
MAGIC = b"phantora-async recording\n"
_TRAILER = struct.Struct("<QQQ16s")
"""The trailer: the offset of the header, its bytes in the file, its bytes unpacked, its digest."""
SHARE_OF_MEMORY = 2
"""A recording may need this machine's memory divided by this number."""
HEADER_GROWS = 25
"""The most bytes of memory for a byte of JSON."""
MOST_PIECE_NBYTES = 1 << 28
MOST_PIECES = 1 << 24
LEVEL = 6


class Damaged(UsageError):
    """The file is no recording, or has changed since it was written."""


def _format() -> str:
    """The format of the file, and of the records in it."""
    return f"{FORMAT}.{records.VERSION}"


def _digest(content: bytes | memoryview) -> bytes:
    return blake2b(content, digest_size=16).digest()


class Writer:
    """Writes a recording: ``put`` pieces, then ``close`` with the header."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(PARTIAL)
        self._partial.unlink(missing_ok=True)
        self._file: IO[bytes] = open(self._partial, "wb", opener=for_user_alone)  # noqa: SIM115
        self._file.write(MAGIC)
        self._numbers: dict[tuple[bytes, int], int] = {}
        self._pieces: list[list[Any]] = []

    def put(self, content: bytes, width: int = 1) -> int:
        """Stores a piece and returns the number of the one with this content. `width`: it is a table with rows of so
        many bytes.
        """
        digest = _digest(content)
        number = self._numbers.get((digest, width))
        if number is None:
            number = self._numbers[digest, width] = len(self._pieces)
            packed = zlib.compress(_turned(content, width), LEVEL)
            self._pieces.append([self._file.tell(), len(packed), len(content), width, _digest(packed).hex()])
            self._file.write(packed)
        return number

    def close(self, header: dict[str, Any]) -> None:
        content = orjson.dumps({"format": _format(), **header, "pieces": self._pieces}, option=orjson.OPT_NON_STR_KEYS)
        packed = zlib.compress(content, LEVEL)
        at = self._file.tell()
        self._file.write(packed)
        self._file.write(_TRAILER.pack(at, len(packed), len(content), _digest(packed)))
        self._file.close()
        self._partial.replace(self._path)

    def abandon(self) -> None:
        """Removes the file, because nothing was recorded."""
        with contextlib.suppress(OSError):  # the rest may not fit on the disk, and nobody wants it
            self._file.close()
        self._partial.unlink(missing_ok=True)


def _turned(content: bytes, width: int) -> bytes:
    """The table column by column, which compresses better."""
    if width == 1:
        return content
    return np.frombuffer(content, np.uint8).reshape(-1, width).T.tobytes()


class Reader:
    """Reads a recording. Raises Damaged for a file that is no recording of this format."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._room = psutil.virtual_memory().total // SHARE_OF_MEMORY
        """The bytes that may still be read."""
        try:
            self._content = memoryview(read_bytes(path, min(self._room, path.stat().st_size), MAGIC))
        except OSError as error:
            raise Damaged(
                f"{path}: {error.strerror or error}", "run --record DIR makes a recording; a run that fails leaves none"
            ) from None
        self._room -= len(self._content)
        if self._content[: len(MAGIC)] != MAGIC:
            raise Damaged(f"{path} is no recording", "run --record DIR makes one")
        self.header = self._header()
        self._pieces: Sequence[Any] = self.list("pieces", MOST_PIECES)
        self._read: dict[int, bytes] = {}

    def _header(self) -> dict[str, Any]:
        end = len(self._content) - _TRAILER.size
        if end < len(MAGIC):
            raise self.damaged("it is cut off")
        at, packed, nbytes, digest = _TRAILER.unpack_from(self._content, end)
        if at + packed != end:
            raise self.damaged("it is cut off")
        self.digest: str = digest.hex()
        """The file's: the header has digests of all pieces."""
        if _digest(self._content[at:end]) != digest:
            raise self.damaged("its header is not what was written")
        content = self._unpacked(at, packed, nbytes, HEADER_GROWS)
        try:
            header = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise self.damaged(str(error)) from None
        if not isinstance(header, dict) or header.get("format") != _format():
            found = header.get("format") if isinstance(header, dict) else None
            raise Damaged(
                f"{self._path} has format {found}, and this phantora-async reads format {_format()}",
                "record the run again with this version",
            )
        return header

    def _unpacked(self, at: int, packed: int, nbytes: int, grows: int = 1) -> bytes:
        """The unpacked bytes. `grows`: the bytes of memory that one of them takes."""
        if nbytes * grows > self._room:
            raise Damaged(
                f"{self._path} holds more than a part in {SHARE_OF_MEMORY} of this machine's memory has room for",
                "replay it on a machine with more memory",
            )
        self._room -= nbytes * grows
        if at < len(MAGIC) or at + packed > len(self._content) or packed < 0:
            raise self.damaged("it is cut off")
        stream = zlib.decompressobj()
        try:
            content = stream.decompress(self._content[at : at + packed], nbytes + 1)
        except zlib.error as error:
            raise self.damaged(str(error)) from None
        if len(content) != nbytes or not stream.eof:
            raise self.damaged("a piece is not as long as was written")
        return content

    def piece(self, number: Any) -> bytes:
        """The content of a piece."""
        if not isinstance(number, int) or not 0 <= number < len(self._pieces):
            raise self.damaged(f"it has no piece {number}")
        known = self._read.get(number)
        if known is not None:
            return known
        entry = self._pieces[number]
        if not isinstance(entry, list) or len(entry) != 5 or not all(type(one) is int for one in entry[:4]):
            raise self.damaged("a piece is not described")
        at, packed, nbytes, width, digest = entry
        if not 0 <= nbytes <= MOST_PIECE_NBYTES or not 1 <= width <= 4096 or nbytes % width:
            raise self.damaged("a piece has no size")
        if packed < 0 or _digest(self._content[max(at, 0) : max(at, 0) + packed]).hex() != digest:
            raise self.damaged("a piece is not what was written")
        content = self._unpacked(at, packed, nbytes)
        if width > 1:
            content = np.frombuffer(content, np.uint8).reshape(width, -1).T.tobytes()
        self._read[number] = content
        return content

    def list(self, name: str, most: int) -> list[Any]:
        """A list of the header, with at most so many entries."""
        found = self.header.get(name)
        if not isinstance(found, list) or len(found) > most:
            raise self.damaged(f"{name} is no list")
        return found

    def damaged(self, what: str) -> Damaged:
        return Damaged(f"{self._path} is damaged: {what}", "record the run again")
