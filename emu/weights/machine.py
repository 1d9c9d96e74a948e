"""Finds how much memory and disk this machine has left, or the container that the run is in."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_LEFT_TO_OTHERS = 8
"""The part of the memory that is left to the ranks' own pages: one eighth."""
_LEAST_FREE = 20
"""A disk is used until a twentieth of it is left."""
_GROUPS = Path("/sys/fs/cgroup")


def room_for(nbytes: int) -> bool:
    """Tells whether so much more memory can be taken, which the kernel cannot write to a disk."""
    total, available = _machine()
    limit = _group()
    if limit is not None:
        total, available = min(total, limit[0]), min(available, limit[1])
    return available - nbytes > total // _LEFT_TO_OTHERS


def disk_has_room_for(nbytes: int, folder: Path) -> bool:
    """Tells whether so many more bytes may be written to the folder's disk."""
    status = os.statvfs(folder)
    return (status.f_bavail - status.f_blocks // _LEAST_FREE) * status.f_frsize >= nbytes


def _machine() -> tuple[int, int]:
    """Returns all memory, and what is available, in bytes."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemTotal"].split()[0]) << 10, int(fields["MemAvailable"].split()[0]) << 10


def _group() -> tuple[int, int] | None:
    """Returns all memory of the control group (version 2), and what is available, in bytes; None if it has no limit."""
    with contextlib.suppress(OSError, ValueError, StopIteration, KeyError):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        path = next(line.removeprefix("0::") for line in lines if line.startswith("0::"))
        folder = next(folder for folder in (_GROUPS / path.lstrip("/"), _GROUPS) if (folder / "memory.max").is_file())
        limit = int((folder / "memory.max").read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        cache = int(stat["file"]) - int(stat["shmem"])  # the kernel gives it back when it is needed
        return limit, limit - int((folder / "memory.current").read_text()) + cache
    return None
