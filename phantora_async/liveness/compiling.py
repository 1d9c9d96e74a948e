"""Finds which ranks compile a graph or a kernel for all: they hold a lock on its file, which the kernel reports."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

LOCKS = Path("/proc/locks")


def compiling_ranks(
    folder: Path | None, kernels: Path | None, pids: Mapping[int, int], locks: Path = LOCKS, proc: Path = LOCKS.parent
) -> list[int]:
    """The ranks that hold a lock on a file of `folder`, or of a folder of `kernels`. `pids`: the ranks' processes.
    Empty where the kernel does not report locks, and for ranks on other machines.
    """
    ranks = {pid: rank for rank, pid in pids.items()}
    try:
        held = [words for line in locks.read_text().splitlines() if (words := line.split())[1] == "FLOCK"]
        inodes = {int(words[5].rpartition(":")[2]): int(words[4]) for words in held if int(words[4]) in ranks}
    except (OSError, ValueError, IndexError):
        return []
    found = {inodes[inode] for inode in _inodes(folder) if inode in inodes} if inodes else set()
    found |= {pid for pid in {*inodes.values()} - found if kernels and _has_locked(proc / str(pid) / "fd", kernels)}
    return sorted(ranks[pid] for pid in found)


def _inodes(folder: Path | None) -> Iterable[int]:
    """The inodes of a folder's files."""
    if folder is not None:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            yield from (entry.inode() for entry in entries)


def _has_locked(descriptors: Path, kernels: Path) -> bool:
    """Returns true if one of the process's open files is the lock of a kernel in Triton's cache."""
    with contextlib.suppress(OSError):
        for one in os.listdir(descriptors):
            with contextlib.suppress(OSError):  # closed by now
                path = Path(os.readlink(descriptors / one))
                if path.name == "lock" and path.parent.parent == kernels:
                    return True
    return False
