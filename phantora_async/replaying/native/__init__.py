"""The engine of replays: a C library without dependencies, and its binding.

Lives here: `engine.h` says what the C files do; `binding.py` calls them.
Comes in: rows of each rank as arrays; functions that say when collectives complete.
Goes out: the state in which virtual time ends, and answers.
May import: nothing of ours.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

ABI = 2
_HERE = Path(__file__).parent
_SHARED = ("profiles/gpu_sharing.def", "phantora_async/virtual_time/polls.def")
"""Figures that virtual time in Python reads, too."""
LIBRARY = _HERE / "libreplay.so"
FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")


class BuildError(Exception):
    """The library is not built, and cannot be."""


def sources() -> list[Path]:
    """The C files of the library."""
    return sorted(_HERE.glob("*.c"))


def build(target: Path = LIBRARY) -> Path:
    """Compiles the library. Raises BuildError."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise BuildError("the engine of replays is not built and no C compiler was found: install gcc or a wheel")
    fresh = target.with_suffix(f".{os.getpid()}.new")
    command = [compiler, *FLAGS, "-o", str(fresh), *map(str, sources())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"building the engine of replays failed:\n{done.stderr}")
    fresh.replace(target)
    return target


def _stale() -> bool:
    if not LIBRARY.exists():
        return True
    if not (_HERE.parents[2] / ".git").exists():
        return False
    headers = [*_HERE.glob("*.h"), *(_HERE.parents[2] / path for path in _SHARED)]
    return any(path.stat().st_mtime > LIBRARY.stat().st_mtime for path in [*sources(), *headers])


@cache
def library() -> ctypes.CDLL:
    """The loaded library. An installed wheel carries it; a source checkout builds it when a source is newer."""
    if _stale():
        build()
    loaded = ctypes.CDLL(str(LIBRARY))
    if loaded.rp_abi() != ABI:
        raise BuildError(f"{LIBRARY} has version {loaded.rp_abi()}, {ABI} is needed: remove it")
    return loaded
