"""Compiles each Triton kernel once for all ranks.

On a cluster every process compiles for itself, in parallel with all others. Here all ranks share a few cores and one
cache folder: the first rank that misses a kernel holds a lock file while it compiles, the others wait and then find it.
"""

from __future__ import annotations

import functools
from typing import Any

from ..private.changes import Names, changes
from . import file_locks

_WAIT_S = 180.0
"""The time, in seconds, after which a rank that waits compiles too, as one that failed may hold its lock until it ends:
longer than any kernel compiles.
"""


def install() -> None:
    """Replaces the look-up and the storing of Triton's cache. Called once, in the forker. Does nothing without Triton,
    which comes with torch wherever torch can use it.
    """
    changes.install("Triton's cache", _change)


def _change(names: Names) -> None:
    names.change("get_group", _one_compiles)
    names.change("put_group", _storing)


def _one_compiles(look_up: Any) -> Any:
    @functools.wraps(look_up)
    def get_group(self: Any, filename: str) -> Any:
        found = look_up(self, filename)
        if found is not None or self.lock_path is None:
            return found
        lock = file_locks.lock(self.lock_path, _WAIT_S)
        found = look_up(self, filename)
        if lock is not None and found is None:
            self._compiling = lock  # closed by put_group, or with the manager
        elif lock is not None:
            lock.close()
        return found

    return get_group


def _storing(store: Any) -> Any:
    @functools.wraps(store)
    def put_group(self: Any, filename: str, group: Any) -> Any:
        try:
            return store(self, filename, group)
        finally:
            lock = vars(self).pop("_compiling", None)
            if lock is not None:
                lock.close()

    return put_group
