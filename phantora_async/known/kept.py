"""Results of earlier runs, in the user's cache folder.

A result is one file: it is written completely or not at all, read by one command and removed by another without harm,
and only this user can read or write it. The folder is of a bounded size; results that were used least recently are
removed first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from formats.files import read_bytes, write_whole
from phantora_async import compile_cache
from phantora_async.known.inputs import State, first_changed

FORMAT = 1
MOST_NBYTES = 256 << 20
"""The most bytes of all results."""
MOST_RESULT_NBYTES = 32 << 20
"""The most bytes of one result, before and after compression by a factor of up to 8."""
MOST_OF_KEY = 8
"""The most results of one key: of a script that is edited to and fro."""
_SUFFIX = ".result"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run."""

    began: str
    """The time at which it was run, as its report has it."""
    run_dir: str
    report: str
    """The report's text."""
    log: str
    """The output of rank 0; "" if that is in no log of its own."""
    inputs: Mapping[str, State]


def folder() -> Path:
    return compile_cache.default_folder() / "known"


def why_unusable() -> str:
    """Makes the folder; "" if nobody else can use it."""
    place = folder()
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = place.lstat()
    except OSError as error:
        return f"{place}: {error.strerror}"
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        return f"{place} is not this user's alone"
    return ""


def find(key: str) -> Result | None:
    """The latest result of this key whose inputs are as they were."""
    if why_unusable():
        return None
    for path in _newest_first(folder().glob(f"{key}-*{_SUFFIX}")):
        result = _read(path)
        if result is not None and not first_changed(result.inputs):
            with contextlib.suppress(OSError):
                os.utime(path)
            return result
    return None


def keep(key: str, result: Result) -> str:
    """Keeps a result. Returns why that is impossible; "" if it is not."""
    if why := why_unusable():
        return why
    content = json.dumps({"format": FORMAT, **asdict(result)}).encode()
    if len(content) > 8 * MOST_RESULT_NBYTES:
        return "its report is too large"
    content = zlib.compress(content, 1)
    if len(content) > MOST_RESULT_NBYTES:
        return "its report is too large"
    inputs = hashlib.sha256(json.dumps(dict(result.inputs), sort_keys=True).encode()).hexdigest()[:16]
    path = folder() / f"{key}-{inputs}{_SUFFIX}"
    try:
        _make_room(key, len(content))
        write_whole(path, content, private=True)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def _newest_first(paths: Iterable[Path]) -> list[Path]:
    found = []
    for path in paths:
        with contextlib.suppress(OSError):  # another command has removed it
            found.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(found, reverse=True)]


def _make_room(key: str, nbytes: int) -> None:
    """Removes results, and what killed commands have left, until there is room for one more."""
    of_key, room = MOST_OF_KEY, MOST_NBYTES - nbytes
    for path in _newest_first(folder().iterdir()):
        with contextlib.suppress(OSError):
            room -= path.stat().st_size
            of_key -= path.name.startswith(f"{key}-")
            if room < 0 or (of_key <= 0 and path.name.startswith(f"{key}-")):
                path.unlink()


def _read(path: Path) -> Result | None:
    """Reads a result; removes a file that is none."""
    try:
        decompressor = zlib.decompressobj()
        content = decompressor.decompress(read_bytes(path, MOST_RESULT_NBYTES), 8 * MOST_RESULT_NBYTES)
        document = json.loads(content)
        if document.pop("format") != FORMAT:
            raise ValueError("another format")
        result = Result(**document)
        if not all(isinstance(text, str) for text in (result.began, result.run_dir, result.report, result.log)):
            raise ValueError("no result")
        result.inputs.items()
        return result
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, LookupError, AttributeError, zlib.error, RecursionError):
        with contextlib.suppress(OSError):
            path.unlink()
        return None
