"""The directory of a run: whose files are in it, and which run uses it now.

A run writes files of known names, and removes those of the run before. The file ``.phantora-run`` lists what the run
before has written: a file of such a name that it does not list is the user's, and the run does not start. While a run
lasts it has this file locked, so that no other run writes into the directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from phantora_async.errors import WRITE_ERRORS, NotWritten, UsageError

MARKER = ".phantora-run"
TOKEN = "token"
"""The file of the secret that lets machines join the run; it is written if the user gave none."""
HINT = "choose another directory: --run-dir DIR"
MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class RunDir:
    """A directory that this process uses alone, as long as this object lives."""

    path: Path
    lock: IO[str]


def files_of(ranks: int) -> set[str]:
    """Names of all files that a run of so many ranks may write."""
    names = {f"rank{rank}.{kind}" for rank in range(ranks) for kind in ("log", "stack", "error.json")}
    names |= {f"server{server}.log" for server in range(ranks)}  # a server has at least one rank
    names |= {f"forker{machine}.log" for machine in range(ranks)}  # machines that join have at least one server each
    return names | {"forker.log", TOKEN, "device.txt", "report.json"}


def claim(path: Path, ranks: int) -> RunDir:
    """Makes the directory, readable by this user alone, if there is none, and removes what an earlier run has left.

    Raises UsageError if another run uses it, or if it has files of the user's that this run would replace.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (path / MARKER).open("a+", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--run-dir {path}: {error.strerror or error}", HINT) from None
    try:
        # Locked before it is read: another run may be writing its list.
        _lock(lock, path)
        lock.seek(0)
        earlier = {name for name in lock.read().split("\n") if name and Path(name).name == name}
        # A file of a run's name that no earlier run has listed is the user's, and is never overwritten.
        names = files_of(ranks)
        present = {entry.name for entry in os.scandir(path)}
        theirs = sorted((present & names) - earlier)
        if theirs:
            raise UsageError(f"--run-dir {path}: {_named(theirs)} in it would be overwritten", HINT)
        for name in present & earlier & files_of(_ranks(earlier)):
            (path / name).unlink()
        # The list is written before any of the files: if this run is killed, the next one knows them as its own.
        lock.truncate(0)
        lock.write("".join(f"{name}\n" for name in sorted(names)))
        lock.flush()
        (path / "device.txt").touch()
    except OSError as error:
        with contextlib.suppress(OSError):
            os.ftruncate(lock.fileno(), 0)  # part of the list may have been written
        _withdraw(lock, path)
        if error.errno in WRITE_ERRORS:
            raise NotWritten(f"--run-dir {path}: {error.strerror}", HINT) from None
        raise UsageError(f"--run-dir {path}: {error.strerror or error}", HINT) from None
    except UsageError:
        _withdraw(lock, path)
        raise
    return RunDir(path, lock)


def _lock(lock: IO[str], path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"--run-dir {path}: another run is using it", HINT) from None
    except OSError:
        return  # a file system without locks


def _withdraw(lock: IO[str], path: Path) -> None:
    """Removes a marker that this run has made and will not use, and the directory if nothing else is in it."""
    with contextlib.suppress(OSError):
        if os.fstat(lock.fileno()).st_size == 0:
            (path / MARKER).unlink()
            path.rmdir()
    with contextlib.suppress(OSError):  # it writes what could not be written before
        lock.close()


def _ranks(names: Iterable[str]) -> int:
    """The number of ranks of the run that has written files of these names, counted by its logs."""
    return sum(name.startswith("rank") and name.endswith(".log") for name in names)


def _named(names: list[str]) -> str:
    some = ", ".join(names[:MOST_NAMED])
    return some if len(names) <= MOST_NAMED else f"{some} and {len(names) - MOST_NAMED} more"
