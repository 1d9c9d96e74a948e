"""Locks between processes: the one that compiles holds a lock file, the others wait for it."""

from __future__ import annotations

import contextlib
import fcntl
from pathlib import Path
from typing import IO

from ..interpreter import real_time

_POLL_S = 0.02


def lock(path: str | Path, wait_s: float) -> IO[str] | None:
    """Returns the open file, locked; closing it unlocks it, as the end of its process does. None if that took longer
    than `wait_s` real seconds. Raises OSError.
    """
    file = open(path, "a")  # noqa: SIM115 - the caller closes it
    deadline_s = real_time.monotonic() + wait_s
    while real_time.monotonic() < deadline_s:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        real_time.sleep(_POLL_S)
    file.close()
    return None
