"""Finds out who can write the files of a folder whose content is executed: compiled code, pickled entries.

The rule is ssh's: a file counts if it belongs to this user or to root, and nobody else may write it. A group may that
has no other member.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

_OVERFLOW_USER = Path("/proc/sys/kernel/overflowuid")
_ENTER = stat.S_IXGRP | stat.S_IXOTH


def why_others_write(folder: Path) -> str:
    """Names the file or folder of this folder, or on the way to it, that others can write or replace; "" if there is
    none. Raises OSError.
    """
    folder = folder.resolve()
    for parent in folder.parents:
        found = parent.stat()
        if not found.st_mode & stat.S_ISVTX and (who := others_writing(found, owners=_unnamed_user())):
            return f"{who} {parent}"
    found = folder.stat()
    if who := others_writing(found):
        return f"{who} {folder}"
    if not found.st_mode & _ENTER:
        return ""
    return next((f"{who} {path}" for path, within in _within(folder) if (who := others_writing(within))), "")


def others_writing(found: os.stat_result, owners: frozenset[int] = frozenset()) -> str:
    """Names who besides this user and root can write a file of this state, with a verb; "" if nobody. `owners`: who may
    own it, too.
    """
    if found.st_uid not in {0, os.geteuid(), *owners}:
        return f"user {found.st_uid} owns"
    if stat.S_ISLNK(found.st_mode):
        return ""
    if found.st_mode & stat.S_IWOTH:
        return "everybody can write"
    if found.st_mode & stat.S_IWGRP and not _has_no_other_member(found.st_gid):
        return f"group {found.st_gid} can write"
    return ""


def _within(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    folders = [str(folder)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # another run has just replaced it
                    continue
                yield entry.path, found
                if stat.S_ISDIR(found.st_mode):
                    folders.append(entry.path)


def _unnamed_user() -> frozenset[int]:
    """Returns the user who owns what no user of this user namespace does, such as / in a container."""
    try:
        return frozenset({int(_OVERFLOW_USER.read_text())})
    except OSError:
        return frozenset()


def _has_no_other_member(group: int) -> bool:
    """Tells whether the group has no other member. Linux distributions give each user such a group, and let it write
    what the user makes.
    """
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return user.pw_gid == group and found.gr_name == user.pw_name and set(found.gr_mem) <= {user.pw_name}
