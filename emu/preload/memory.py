"""Keeps the modules that trials have accepted, in files below the user's cache folder: they may be deleted at any time.

A file is named by all that its content follows from. It is replaced as a whole, so runs may share it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable

RULES = 3
"""The version of the rules: it counts up when `trial` refuses modules that it accepted before."""
MOST_FILES = 200
MOST_NAMES = 20_000


def path(folder: str, key: Iterable[str]) -> str:
    return f"{folder}/{hashlib.blake2b(json.dumps([RULES, *key]).encode(), digest_size=12).hexdigest()}"


def read(file: str) -> list[str] | None:
    """Returns the names in a file; None if there is no such file, or if it is damaged."""
    try:
        with open(file, encoding="utf-8") as text:
            names = json.load(text)
    except (OSError, ValueError):
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    with contextlib.suppress(OSError):
        os.utime(file)
    return names


def write(file: str, names: list[str]) -> None:
    """Writes the names to a file, unless the disk is full, for example. Removes the files that have not been read for
    longest.
    """
    folder = os.path.dirname(file)
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True)
        descriptor, partial = tempfile.mkstemp(dir=folder, prefix=".")
        with os.fdopen(descriptor, "w", encoding="utf-8") as text:
            json.dump(names[:MOST_NAMES], text)
        os.replace(partial, file)
        files = sorted((entry.stat().st_mtime_ns, entry.path) for entry in os.scandir(folder))
        for _, old in files[:-MOST_FILES]:
            os.unlink(old)
