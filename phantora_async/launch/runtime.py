"""What a run needs of this machine before a process starts: a folder, files that may be open, a port."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from emu.contract import installed
from phantora_async.errors import EnvironmentUnusable

HOOK = installed.HOOK_LIBRARY
OWN_FILES = 128
"""Open files that the command or a rank needs, however many ranks there are."""
MAX_TMPDIR = 70
"""Bytes: the path of a Unix socket has at most 107."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A folder that exists during the run: the socket (its path must be short), the cost table, links to libraries."""

    folder: Path
    epoch_s: int

    @property
    def socket(self) -> Path:
        return self.folder / "coordinator"

    @property
    def cost_table(self) -> Path:
        return self.folder / "costs"

    @property
    def job(self) -> Path:
        """The job's description: a script's arguments may be longer than a control message."""
        return self.folder / "job"

    @property
    def libraries(self) -> Path:
        return self.folder / "lib"

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def check_open_files(ranks: int) -> None:
    """Raises the soft limit of open files if that is needed. Raises EnvironmentUnusable if it may not be raised."""
    needed = OWN_FILES + 2 * ranks
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise EnvironmentUnusable(
                f"this run needs {needed} open files, but a process may open {hard}", f"ulimit -n {needed}"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def make_runtime() -> Runtime:
    """Raises EnvironmentUnusable if the hook library was not built."""
    for built in (HOOK, installed.PYTHON_STUB):
        if built.is_file():
            continue
        raise EnvironmentUnusable(
            f"{built} is missing",
            f"in a source checkout, build it: {sys.executable} emu/hook/build.py",
        )
    runtime = Runtime(_runtime_folder(), int(time.time()))
    try:
        runtime.libraries.mkdir()
        for library in HOOK.parent.glob("*.so.1"):
            (runtime.libraries / library.name).symlink_to(library)
        (runtime.libraries / "libcuda.so").symlink_to(HOOK)
    except BaseException:
        runtime.remove()
        raise
    return runtime


def _runtime_folder() -> Path:
    """A new folder whose path is short enough for sockets: in $TMPDIR, or in another folder for temporary files."""
    tried = dict.fromkeys([os.environ.get("TMPDIR") or "/tmp", "/tmp", "/var/tmp", "/dev/shm"])
    reasons = []
    for parent in tried:
        if len(os.fsencode(parent)) > MAX_TMPDIR:
            reasons.append(f"the path {parent} is too long for sockets")
            continue
        try:
            return Path(tempfile.mkdtemp(prefix="phantora-", dir=parent))
        except OSError as error:
            reasons.append(f"{parent}: {error.strerror}")
    raise EnvironmentUnusable(f"no folder for temporary files can be used ({'; '.join(reasons)})", "set TMPDIR")


def free_port() -> int:
    """A port on which nothing listens, outside the range from which the kernel chooses ports."""
    for port in random.sample(range(20_000, 32_000), 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise EnvironmentUnusable("no free TCP port between 20000 and 32000 for MASTER_PORT")
