"""The inputs of a run: what of its notes decides its result, and the state of each of them.

A state is what a later run would find. A file that was read is known by its content; size, time of change and number of
the file spare reading it again. Of a file that was only looked at, size and time are its state; of a folder that was
listed, the names in it. What was not there must still not be there. What the run itself has made is no input.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emu.contract import isolation
from phantora_async.known.notes import Flag, Notes

State = list[Any]
"""The kind of a path's state, and what it consists of: JSON values."""
MOST_READ_NBYTES = 64 << 20
"""The size up to which a file's content is compared. A larger file is another one if its time of change is."""
JUST_BEFORE_NS = 50_000_000
"""The time before a run's start in which a change may have come later than what the file system says: its clock ticks
every some milliseconds.
"""
_PACKAGES = re.compile("/(site|dist)-packages/")
_SYSTEM = ("/bin", "/lib", "/lib32", "/lib64", "/sbin", "/usr")
_KERNEL = ("/dev", "/proc", "/sys")
_NAME_SERVICE = ("/run/nscd/", "/var/run/nscd/")
"""The folders in which the C library asks for users, groups and hosts before it reads the system's files."""
_MEMORY = "/dev/shm"
"""The folder below these that has files of users."""
_SEARCHED = (".py", ".pyc", ".so", ".pth", ".zip", ".egg", ".egg-info", ".dist-info", ".egg-link")
"""The ends of names that the search for modules and for packages' metadata looks for, besides folders of packages."""
_OF_KERNEL = frozenset(
    (
        "/proc/meminfo",
        "/proc/cpuinfo",
        "/proc/version",
        "/proc/version_signature",
        "/proc/self/cgroup",
        "/proc/self/comm",
        "/proc/self/maps",
        "/proc/self/task",
        "/proc/self/fd",
        "/proc/sys/net/core/somaxconn",
        "/dev/urandom",
    )
)
"""Files of the kernel that PyTorch's and Python's own libraries read in every program. What a program reads otherwise
there is not known by a later run.
"""
_LOOKED = Flag.LOOKED | Flag.READ | Flag.LISTED | Flag.IMPORT_LISTED
MOST_NAMED = 3
RELATIVE_LIBRARY = "a library by a relative path"
"""The words of the notes for such a library, as inputs.c has them."""


class Unknown(Exception):
    """Raised if the result cannot be kept; its text says why."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The facts about a run that its notes refer to."""

    began_ns: int
    """The instant before anything of the run was read, as `time.time_ns` has it."""
    run_dir: str
    own: tuple[str, ...]
    """Caches of the emulation."""
    python: str
    """The interpreter of the ranks."""
    private_network: bool
    """True if the servers reach nobody but each other, provided that they are isolated."""


def inputs_of(notes: Notes, around: Surroundings) -> dict[str, State]:
    """The paths on which the run depended, with their states. Raises Unknown."""
    if reasons := list(obstacles(notes, around)):
        more = f", and {len(reasons) - MOST_NAMED} more" if len(reasons) > MOST_NAMED else ""
        raise Unknown("; ".join(reasons[:MOST_NAMED]) + more)
    found: dict[str, State] = {}
    installed = _Installed(around.python)
    for path, flags in notes.paths.items():
        if not _is_ours(path, notes, around):
            state = _state_after(path, flags, notes, around, installed)
            if state is not None:
                found[path] = state
    return found


def obstacles(notes: Notes, around: Surroundings) -> Iterator[str]:
    """Says what the run did of which a later one cannot know the outcome."""
    if notes.unnoted:
        yield notes.unnoted
    own = (*around.own, *notes.own)
    for program in sorted(notes.started):
        name, ours = os.path.basename(program), any(isolation.is_below(program, folder) for folder in own)
        if name != "ldconfig" and not (name.startswith("python") and (ours or program == name)):
            yield f"it starts {program}"
    for address in sorted(notes.connected):
        host, _, port = address.rpartition(" ")
        if address.startswith("/"):  # sockets in folders are reached from private networks, too
            if not _is_ours(address, notes, around) and not address.startswith(_NAME_SERVICE):
                yield f"it talks to {address}"
        elif (notes.visible is None or not around.private_network) and not (_is_here(host) and port in notes.ports):
            yield f"it talks to {host} at port {port}"
    for what in sorted(notes.measured):
        if what == RELATIVE_LIBRARY:
            yield f"it opens {what}"
        else:
            yield f"it asks for {what if ' ' in what else f'the free space of {what}'} of this machine"
    for path, flags in notes.paths.items():
        if flags & (Flag.READ | Flag.LISTED) and path.startswith(("/proc/", "/sys/")) and path not in _OF_KERNEL:
            yield f"it reads {path}"


def _is_here(host: str) -> bool:
    plain = host.removeprefix("::ffff:")
    return plain.startswith(("127.", "10.77.")) or plain in ("0.0.0.0", "::", "::1")


def _is_ours(path: str, notes: Notes, around: Surroundings) -> bool:
    """Tells whether the path is no input: it is made by this run alone, is the emulation's, or the kernel's."""
    path = os.path.normpath(path)
    if "/__pycache__/" in path or path.endswith("/__pycache__"):
        return True  # made of sources, which are inputs
    if any(isolation.is_below(path, folder) for folder in (around.run_dir, *around.own, *notes.own)):
        return True
    if any(isolation.is_below(path, folder) for folder in _KERNEL) and not isolation.is_below(path, _MEMORY):
        return True
    if notes.visible is None:
        return False
    private = any(isolation.is_below(path, folder) for folder in isolation.PRIVATE)
    return private and not any(isolation.is_below(path, one) or isolation.is_below(one, path) for one in notes.visible)


class _Installed:
    """Tells which files come with the system or with packages. Their contents are not compared: who installs changes
    sizes, times and numbers of files.
    """

    def __init__(self, python: str) -> None:
        prefixes = {os.path.dirname(os.path.dirname(path)) for path in (python, os.path.realpath(python))}
        self._folders = (*_SYSTEM, *(f"{prefix}/lib" for prefix in prefixes), *(f"{one}/bin" for one in prefixes))

    def __call__(self, path: str) -> bool:
        return bool(_PACKAGES.search(path)) or any(isolation.is_below(path, folder) for folder in self._folders)


def _state_after(path: str, flags: int, notes: Notes, around: Surroundings, installed: _Installed) -> State | None:
    """The state that the run has found, which must be known from what is there after it. None: the path is no input.
    Raises Unknown.
    """
    written = flags & (Flag.WRITTEN | Flag.REMOVED)
    if flags & Flag.FIRST_WRITTEN and not flags & Flag.MISSING:
        return None
    if written:
        if flags & Flag.MISSING and not (flags & Flag.REMOVED and not flags & Flag.FIRST_WRITTEN):
            return ["missing"]
        if flags & (_LOOKED | Flag.MISSING):
            raise Unknown(f"it changes {path}, on which it depends")
        return None
    if not flags & (_LOOKED | Flag.MISSING):
        return None
    if flags & Flag.MISSING and flags & _LOOKED:
        raise Unknown(f"{path} was there at one time and not at another")
    found = state_of(path, flags, _excluded(path, around), installed(path))
    if (found[0] == "missing") != bool(flags & Flag.MISSING):
        raise Unknown(f"{path} came or went while it ran")
    if found[0] != "missing":
        _check_unchanged(path, found, flags, notes, around)
    return found


def _check_unchanged(path: str, state: State, flags: int, notes: Notes, around: Surroundings) -> None:
    """Checks that the state is that of before the run. Raises Unknown."""
    began_ns = min(around.began_ns, notes.imports_began_ns) if flags & Flag.IMPORTED else around.began_ns
    latest_ns = began_ns - JUST_BEFORE_NS
    if state[0] == "folder":
        return
    if state[0] == "other":
        raise Unknown(f"{path} is neither a file nor a folder")
    try:
        if max(os.lstat(path).st_ctime_ns, os.stat(path).st_ctime_ns) <= latest_ns:
            return
        if state[0] == "modules":
            # Others than modules may have come and gone: logs, results.
            late = [
                name
                for name in _names(path, True, _excluded(path, around))
                if not notes.paths.get(os.path.join(path, name), 0) & Flag.WRITTEN
                and os.lstat(os.path.join(path, name)).st_ctime_ns > latest_ns
            ]
            if not late:
                return
    except OSError:
        pass
    raise Unknown(f"{path} changed while it ran or just before")


def _excluded(folder: str, around: Surroundings) -> str:
    """The name in this folder that leads to the run's directory: each run may have another one."""
    if isolation.is_below(around.run_dir, folder):
        return os.path.relpath(around.run_dir, folder).partition("/")[0]
    return ""


def state_of(path: str, flags: int, excluded: str = "", is_installed: bool = False) -> State:
    """The state that the path has now."""
    try:
        found = os.stat(path)
        link = os.readlink(path) if stat.S_ISLNK(os.lstat(path).st_mode) else ""
        if stat.S_ISDIR(found.st_mode):
            if flags & Flag.LISTED:
                return ["names", link, excluded, _digest(_names(path, False, excluded))]
            if flags & Flag.IMPORT_LISTED:
                return ["modules", link, excluded, _digest(_names(path, True, excluded))]
            return ["folder", os.path.realpath(path)]  # a program may change into it, and name files from there
        if not stat.S_ISREG(found.st_mode):
            return ["other", link]
        looks = [found.st_size, found.st_mtime_ns]
        mode = stat.S_IMODE(found.st_mode)
        if not flags & Flag.READ:
            return ["looks", link, mode, *looks]
        if is_installed:
            return ["installed", link, mode, *looks, found.st_ino]
        if found.st_size > MOST_READ_NBYTES:
            return ["large", link, mode, *looks, found.st_ino, found.st_ctime_ns]
        # The time of a source that is imported matters to caches alone. That of data may be what a script compares.
        kind = "dated" if flags & Flag.LOOKED and not path.endswith(".py") else "content"
        return [kind, link, mode, *looks, found.st_ino, found.st_ctime_ns, _content(path)]
    except OSError:
        return ["missing"]


def changed(path: str, state: State) -> bool:
    """Tells whether the path has another state now."""
    try:
        return _changed(path, state)
    except (OSError, LookupError, TypeError, ValueError):
        return True


def _changed(path: str, state: State) -> bool:
    kind = state[0]
    try:
        link = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return bool(kind != "missing")
    found = os.stat(path) if stat.S_ISLNK(link.st_mode) else link
    if kind == "folder":
        return not stat.S_ISDIR(found.st_mode) or os.path.realpath(path) != state[1]
    if kind == "missing" or (os.readlink(path) if found is not link else "") != state[1]:
        return True
    if kind in ("names", "modules"):
        return not stat.S_ISDIR(found.st_mode) or _digest(_names(path, kind == "modules", state[2])) != state[3]
    if not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) != state[2] or found.st_size != state[3]:
        return True
    same_time = bool(found.st_mtime_ns == state[4])
    if kind == "looks":
        return not same_time
    same = same_time and found.st_ino == state[5]
    if kind == "installed":
        return not same
    same = same and found.st_ctime_ns == state[6]
    if kind == "large" or same:
        return not same
    return (kind == "dated" and not same_time) or _content(path) != state[7]


def first_changed(inputs: Mapping[str, State]) -> str:
    """The first path that has another state now; "" if none has."""
    return next((path for path, state in inputs.items() if changed(path, state)), "")


def _names(folder: str, only_searched: bool, excluded: str) -> list[str]:
    names = sorted(name for name in os.listdir(folder) if name not in ("__pycache__", excluded))
    if not only_searched:
        return names
    return [name for name in names if name.endswith(_SEARCHED) or (name.isidentifier() and _is_folder(folder, name))]


def _is_folder(folder: str, name: str) -> bool:
    return os.path.isdir(os.path.join(folder, name))


def _digest(names: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()


def _content(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
