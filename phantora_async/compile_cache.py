"""Where ranks keep what torch.compile and Triton make, so that the next run finds it.

Triton's binaries depend on their source alone. What Inductor keeps also depends on the emulated GPU and on the cost
model, which chooses among candidates; so there is a folder for each of them, and none is that of a real GPU.
"""

from __future__ import annotations

import dataclasses
import errno
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
"""In place of a folder: nothing outlives the run."""
LEAST_FREE_NBYTES = 256 << 20
"""A cache on a fuller disk is not used: a compilation that cannot write its files fails."""
_FULL_NBYTES = 1 << 20
"""A disk with less cannot take what a compilation writes."""
_SOURCES = (".py", ".def")


def default_folder() -> Path:
    """May be deleted at any time."""
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
    """What this cache has to do with the error whose message is `words`; "" if nothing."""
    try:
        is_full = shutil.disk_usage(folder).free < _FULL_NBYTES
    except OSError:
        return ""
    if not is_full or os.strerror(errno.ENOSPC) not in words:
        return ""
    return f"the disk of {short(folder)} is full, where compiled code is kept (--compile-cache names another folder)"


def environment(folder: Path, gpu: Gpu) -> dict[str, str]:
    """Variables of torch and Triton. Only Triton's is left as it is if the user has set it: a folder that Inductor
    uses for real GPUs must not be used here.
    """
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor" / key(gpu)),
        "TRITON_CACHE_DIR": str(kernel_locks(folder)),
    }


def locks(folder: Path, gpu: Gpu) -> Path:
    """Where a rank that compiles a graph holds a lock: ``emu.compiler.graph_cache``."""
    return folder / "inductor" / key(gpu) / "locks"


def kernel_locks(folder: Path) -> Path:
    """Triton's cache: who compiles a kernel locks a file in one of its folders (``emu.compiler.triton_cache``)."""
    return Path(os.environ.get("TRITON_CACHE_DIR") or folder / "triton")


def key(gpu: Gpu) -> str:
    """Names the emulated GPU, the cost model and this version of the emulation by their content. (Ranks add the version
    of torch.) Not the number of GPUs: what the hungriest of them draws changes the clock, and candidates are compared
    at the full one.
    """
    content = hashlib.sha256(json.dumps(dataclasses.asdict(gpu.one_of(1)), sort_keys=True, default=str).encode())
    for path in _sources():
        content.update(path.name.encode())
        content.update(path.read_bytes())
    return content.hexdigest()[:20]


def _sources() -> Iterator[Path]:
    """Of the cost model and of the hook library that asks it."""
    yield installed.HOOK_LIBRARY
    for folder in (installed.EMU, *(installed.EMU.parent / room for room in ("formats", "profiles"))):
        yield from sorted(path for path in folder.rglob("*") if path.suffix in _SOURCES)
