"""Triton kernels are compiled once for all ranks of a machine.

On a cluster every process compiles for itself, at the same time as all others; here they share a few cores, and one
cache. A rank that misses a kernel there holds a lock while it compiles; the others wait and find it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import time
from typing import Any

_WAIT_S = 180.0
"""Longer than any kernel compiles. Then a rank compiles too: one that failed may hold its lock until it ends."""
_POLL_S = 0.02
# Bound before emu.clock.virtual_clock gives ranks another time: what waits here waits for processes.
_now, _sleep = time.monotonic, time.sleep


def install() -> None:
    """In the forker, once. Nothing to do without Triton: it comes with torch where torch can use it."""
    try:
        from triton.runtime.cache import FileCacheManager
    except ImportError:
        return
    look_up, store = FileCacheManager.get_group, FileCacheManager.put_group

    @functools.wraps(look_up)
    def get_group(self: Any, filename: str) -> Any:
        found = look_up(self, filename)
        if found is not None or self.lock_path is None:
            return found
        lock = open(self.lock_path, "a")  # noqa: SIM115 - closed by put_group, or with the manager
        locked = _lock(lock.fileno())
        found = look_up(self, filename)
        if locked and found is None:
            self._compiling = lock
        else:
            lock.close()
        return found

    @functools.wraps(store)
    def put_group(self: Any, filename: str, group: Any) -> Any:
        try:
            return store(self, filename, group)
        finally:
            lock = vars(self).pop("_compiling", None)
            if lock is not None:
                lock.close()

    FileCacheManager.get_group, FileCacheManager.put_group = get_group, put_group


def _lock(fileno: int) -> bool:
    until = _now() + _WAIT_S
    while _now() < until:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fileno, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        _sleep(_POLL_S)
    return False
