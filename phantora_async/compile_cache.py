"""Keeps what torch.compile and Triton make in ranks, so that the next run finds it.

Triton's binaries depend on their source alone. What Inductor keeps also depends on the emulated GPU and on the cost
model, which chooses among candidates; so there is a folder for each of them, and none is that of a real GPU.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from emu.contract import installed, ownership
from phantora_async.wording import short
from profiles import Gpu

OFF = "off"
"""The value of ``--compile-cache`` that names no folder: compiled code is not kept after the run."""
LEAST_FREE_NBYTES = 256 << 20
"""Free disk space below which the cache is not used: a compilation that cannot write its files fails."""
_FULL_NBYTES = 1 << 20
"""Free disk space below which a compilation cannot write its files."""
_SOURCES = (".py", ".def")


def default_folder() -> Path:
    """The cache's folder if the user names none. It may be deleted at any time."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "phantora-async"


def why_unusable(folder: Path) -> str:
    """Creates the folder and a file in it; "" if that worked, there is room, and nobody else can write in it: ranks and
    the forker execute what they find there.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder == default_folder() and folder.stat().st_uid == os.geteuid():
            folder.chmod(0o700)  # its thousands of files need not be looked at
        with tempfile.TemporaryFile(dir=folder):
            free_nbytes = shutil.disk_usage(folder).free
        if others := ownership.why_others_write(folder):
            return f"{others}, and ranks execute what is in it"
    except OSError as error:
        return error.strerror or str(error)
    return "" if free_nbytes >= LEAST_FREE_NBYTES else f"its disk has only {free_nbytes >> 20} MiB left"


def why_failed(folder: Path, words: str) -> str:
    """Explains how this cache caused the error whose message is `words`: its disk is full. Returns "" if it did not."""
    try:
        is_full = shutil.disk_usage(folder).free < _FULL_NBYTES
    except OSError:
        return ""
    if not is_full or os.strerror(errno.ENOSPC) not in words:
        return ""
    return f"the disk of {short(folder)} is full, where compiled code is kept (--compile-cache names another folder)"


def environment(folder: Path, gpu: Gpu) -> dict[str, str]:
    """The variables that make torch and Triton use this cache. Only Triton's is left as it is if the user has set it: a
    folder that Inductor uses for real GPUs must not be used here.
    """
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor" / key(gpu)),
        "TRITON_CACHE_DIR": str(kernel_locks(folder)),
    }


def locks(folder: Path, gpu: Gpu) -> Path:
    """The folder of the locks that ranks hold while they compile a graph: ``emu.compiler.graph_cache``."""
    return folder / "inductor" / key(gpu) / "locks"


def kernel_locks(folder: Path) -> Path:
    """Triton's cache folder. A rank that compiles a kernel locks a file in one of its subfolders
    (``emu.compiler.triton_cache``).
    """
    return Path(os.environ.get("TRITON_CACHE_DIR") or folder / "triton")


def key(gpu: Gpu) -> str:
    """Names the emulated GPU, the cost model and this version of the emulation by their content. (Ranks add the version
    of torch.) The number of GPUs is not part of it: the GPU that draws most power changes the clock, but candidates are
    compared at the full clock.
    """
    content = hashlib.sha256(json.dumps(dataclasses.asdict(gpu.one_of(1)), sort_keys=True, default=str).encode())
    content.update(_digest_of(tuple(_sources())))
    return content.hexdigest()[:20]


@functools.lru_cache(maxsize=1)
def _digest_of(sources: tuple[tuple[str, int, int], ...]) -> bytes:
    """The digest of the names and contents of these files. A run asks for its key more than once: files of the same
    size and time are not read again.
    """
    content = hashlib.sha256()
    for path, _, _ in sources:
        content.update(os.path.basename(path).encode())
        with open(path, "rb") as file:
            content.update(file.read())
    return content.digest()


def _sources() -> Iterator[tuple[str, int, int]]:
    """The source files of the cost model, and the hook library that asks it for costs, each with size and time."""
    paths = [str(installed.HOOK_LIBRARY)]
    for folder in (installed.EMU, *(installed.EMU.parent / room for room in ("formats", "profiles"))):
        for parent, folders, names in os.walk(folder):
            folders.sort()
            paths += [os.path.join(parent, name) for name in sorted(names) if name.endswith(_SOURCES)]
    for path in paths:
        found = os.stat(path)
        yield path, found.st_size, found.st_mtime_ns
