"""Files that people or other programs have made: regular files whose content is of a bounded size.

A pipe may never end, /dev/zero never does, and a small compressed file may hold any number of bytes. And files that
are written: completely, or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from .nearest import meant_file

MOST_DATA_NBYTES = 64 << 20
"""The most bytes of a report, of flows or of measurements. JSON needs up to 25 times as much memory."""
MOST_TRACE_NBYTES = 512 << 20
"""The most bytes of a trace of one rank."""
MOST_SOURCE_NBYTES = 64 << 20
"""The most bytes of a program's source."""
_CHUNK_NBYTES = 1 << 20
_KIB, _MIB = 1 << 10, 1 << 20

Fault = Callable[[str], Exception]
"""Makes the error that is raised, of a message."""


def read_bytes(path: Path, most_nbytes: int, begin: bytes = b"") -> bytes:
    """Reads the file, decompressed if its name ends in `.gz`; if it does not begin with `begin`, no more than so many
    bytes. Raises OSError, whose `strerror` says what the file is instead or how much it may hold.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, f"is {_kind(mode)}, not a regular file", str(path))
        if (head := file.read(len(begin))) != begin:
            return head
        file.seek(0)
        content = file.read(most_nbytes + 1) if os.fstat(descriptor).st_size <= most_nbytes else None
    if content is not None and path.suffix == ".gz":
        content = _decompressed(content, most_nbytes, path)
    if content is None or len(content) > most_nbytes:
        most = f"{most_nbytes // _MIB:,} MiB" if most_nbytes >= _MIB else f"{most_nbytes // _KIB:,} KiB"
        raise OSError(errno.EFBIG, f"holds more than {most}, the most that is read", str(path))
    return content


def read_text(path: Path, most_nbytes: int, fault: Fault) -> str:
    """The file's text. Raises `fault` of a message if it cannot be read, holds more or is not UTF-8."""
    try:
        return read_bytes(path, most_nbytes).decode()
    except FileNotFoundError as error:
        likely = meant_file(str(path))
        raise fault(f"{path}: cannot be read: {error.strerror}" + (f"; {likely}" if likely else "")) from None
    except OSError as error:
        raise fault(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise fault(f"{path}:{line}: expected UTF-8 text, found the byte 0x{error.object[error.start]:02x}") from None


def write_whole(path: Path, content: bytes, *, private: bool = False) -> None:
    """Completely or not at all, see ``in_place_of``. `private`: a new file is for this user alone. Raises OSError."""
    with in_place_of(path) as partial, open(partial, "wb", opener=for_user_alone if private else None) as file:
        file.write(content)


def for_user_alone(path: str, flags: int) -> int:
    """An opener for ``open``: nobody else may read the new file."""
    return os.open(path, flags, 0o600)


@contextlib.contextmanager
def in_place_of(path: Path) -> Iterator[Path]:
    """A file to write, which becomes `path` when the block ends, and vanishes if it fails; what a link leads to, pipes
    and devices are written directly. Its name ends as that of `path`.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        yield path
        return
    partial = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_figure(path: Path, figure: Any) -> None:
    """A figure of matplotlib's, completely or not at all. Raises OSError, ValueError if its name ends with no form that
    matplotlib knows.
    """
    with in_place_of(path if path.suffix else path.with_suffix(".png")) as partial:
        figure.savefig(partial, dpi=120)


def try_to_write(path: Path) -> None:
    """Raises the OSError that writing a whole file there would meet now; leaves nothing behind."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not path.is_symlink() and (path.is_file() or not path.exists()):
        partial = path.with_name(f".{os.getpid()}.{path.name}")
        partial.touch()
        partial.unlink()


def _kind(mode: int) -> str:
    return "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"


def _decompressed(content: bytes, most_nbytes: int, path: Path) -> bytes | None:
    """None if there is more."""
    parts, nbytes = [], 0
    try:
        with gzip.open(BytesIO(content)) as file:
            while part := file.read(_CHUNK_NBYTES):
                parts.append(part)
                nbytes += len(part)
                if nbytes > most_nbytes:
                    return None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise OSError(errno.EINVAL, f"is no whole gzip file: {error}", str(path)) from None
    return b"".join(parts)
