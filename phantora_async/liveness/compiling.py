"""Which ranks compile a graph for all: they hold a lock on its file, which the kernel tells."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

LOCKS = Path("/proc/locks")


def compiling_ranks(folder: Path | None, pids: Mapping[int, int], locks: Path = LOCKS) -> list[int]:
    """Ranks that hold a lock on a file of this folder. `pids`: of the ranks' processes. None where the kernel does not
    tell, and of ranks on other machines.
    """
    if folder is None:
        return []
    ranks = {pid: rank for rank, pid in pids.items()}
    try:
        held = [words for line in locks.read_text().splitlines() if (words := line.split())[1] == "FLOCK"]
        inodes = {int(words[5].rpartition(":")[2]): ranks[int(words[4])] for words in held if int(words[4]) in ranks}
        if not inodes:
            return []
        with os.scandir(folder) as entries:
            return sorted({inodes[entry.inode()] for entry in entries if entry.inode() in inodes})
    except (OSError, ValueError, IndexError):
        return []
