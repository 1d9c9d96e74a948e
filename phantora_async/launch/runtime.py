"""Makes what a run needs of this machine before a process starts: a folder, a port."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from emu.contract import installed, isolation
from phantora_async.errors import EnvironmentUnusable

HOOK = installed.HOOK_LIBRARY
LEAST_FREE_NBYTES = 16 << 20
"""The free bytes that the folder needs: for the table of costs, and for what ranks of a small run share."""
PREFIX, OWNER = "phantora-", "owner"
"""The beginning of the folder's name, and the file in it that the command keeps locked. If nobody locks it, all
processes of that run were killed.
"""
LIBRARIES = "lib"
"""The name of the folder with links to libraries."""
MAX_TMPDIR = 70
"""The longest path of a folder for temporary files, in bytes: the path of a Unix socket has at most 107."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A folder that exists during the run: the socket (its path must be short), the cost table, links to libraries."""

    folder: Path
    owner: IO[bytes]
    epoch_s: int

    @property
    def socket(self) -> Path:
        return self.folder / "coordinator"

    @property
    def cost_table(self) -> Path:
        return self.folder / "costs"

    @property
    def job(self) -> Path:
        """The file with the job's description: a script's arguments may be longer than a control message."""
        return self.folder / "job"

    @property
    def inputs(self) -> Path:
        """The file in which the run's processes note on which files it depends."""
        return self.folder / "inputs"

    @property
    def libraries(self) -> Path:
        return self.folder / LIBRARIES

    @property
    def ranks(self) -> Path:
        """The part of the folder that ranks may write; they can only read the rest."""
        return Path(isolation.ranks_folder(str(self.folder)))

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.owner.close()


def make_runtime() -> Runtime:
    """Makes the folder of a run. Raises EnvironmentUnusable if the hook library was not built."""
    folder, owner = make_folder()
    runtime = Runtime(folder, owner, int(time.time()))
    try:
        runtime.ranks.mkdir()
    except BaseException:
        runtime.remove()
        raise
    return runtime


def make_folder() -> tuple[Path, IO[bytes]]:
    """Makes a folder with links to libraries, as an interpreter of ranks needs it. Returns it with its lock. Raises
    EnvironmentUnusable if the hook library was not built.
    """
    for built in (HOOK, installed.PYTHON_STUB, installed.RECEIVE_LIBRARY):
        if built.is_file():
            continue
        raise EnvironmentUnusable(
            f"{built} is missing",
            f"in a source checkout, build it: {sys.executable} emu/hook/build.py",
        )
    folder = _runtime_folder()
    _remove_abandoned(folder.parent)
    try:
        owner = _own(folder)
        libraries = folder / LIBRARIES
        libraries.mkdir()
        for library in HOOK.parent.glob("*.so.1"):
            (libraries / library.name).symlink_to(library)
        (libraries / "libcuda.so").symlink_to(HOOK)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder, owner


def temporary_folder() -> Path:
    """The parent folder in which the folder of a run would be made. Raises EnvironmentUnusable if there is none."""
    made = _runtime_folder()
    made.rmdir()
    return made.parent


def _runtime_folder() -> Path:
    """Makes a new folder whose path is short enough for sockets: in $TMPDIR, or in another folder for temporary
    files.
    """
    tried = dict.fromkeys([os.environ.get("TMPDIR") or "/tmp", "/tmp", "/var/tmp", "/dev/shm"])
    reasons = []
    for parent in tried:
        if len(os.fsencode(parent)) > MAX_TMPDIR:
            reasons.append(f"the path {parent} is too long for sockets")
            continue
        try:
            disk = os.statvfs(parent)
            if disk.f_bavail * disk.f_frsize < LEAST_FREE_NBYTES:
                reasons.append(f"{parent}: less than {LEAST_FREE_NBYTES >> 20} MiB are free")
                continue
            return Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        except OSError as error:
            reasons.append(f"{parent}: {error.strerror}")
    raise EnvironmentUnusable(f"no folder for temporary files can be used ({'; '.join(reasons)})", "set TMPDIR")


def _own(folder: Path) -> IO[bytes]:
    """Makes the folder's lock. It gets its name when it is locked, so that no other command finds it free."""
    made = folder / f"{OWNER}.new"
    owner = made.open("wb")
    with contextlib.suppress(OSError):  # a file system without locks: then nobody can lock it
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    made.rename(folder / OWNER)
    return owner


def _remove_abandoned(parent: Path) -> None:
    """Removes folders of this user's runs that nobody locks any more."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(Path(entry.path))


def _remove_if_abandoned(folder: Path) -> None:
    """Removes the folder. Raises OSError if it is in use, or no folder of this user's."""
    file = os.open(folder / OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if os.fstat(file).st_uid == os.getuid() == folder.stat().st_uid:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(file)


def free_port() -> int:
    """A port on which nothing listens, outside the range from which the kernel chooses ports."""
    for port in random.sample(range(20_000, 32_000), 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise EnvironmentUnusable("no free TCP port between 20000 and 32000 for MASTER_PORT")
