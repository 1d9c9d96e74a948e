"""Users and groups of a new user namespace: those that this process can be outside of it, by the same numbers.

Root keeps all ids that it has here; another user keeps only its own, and files of others seem to belong to `nobody`.
"""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")


def write(pid: int) -> None:
    """Maps the ids of the user namespace that the process `pid` has just made. Raises OSError."""
    folder = PROC / str(pid)
    if os.geteuid() == 0:
        uids, gids = (_identity((PROC / "self" / name).read_text()) for name in ("uid_map", "gid_map"))
    else:
        uids, gids = f"{os.geteuid()} {os.geteuid()} 1\n", f"{os.getegid()} {os.getegid()} 1\n"
        (folder / "setgroups").write_text("deny")
    (folder / "uid_map").write_text(uids)
    (folder / "gid_map").write_text(gids)


def _identity(ranges: str) -> str:
    """Returns the map of a namespace in which the same ids are valid as in the one with these ranges."""
    lines = []
    for line in ranges.splitlines():
        first, _, count = line.split()
        lines.append(f"{first} {first} {count}\n")
    return "".join(lines)
