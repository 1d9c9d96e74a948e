"""The engine of virtual time: a C library without dependencies, and its binding. README.md has its rules.

Lives here: `engine.h` says what the C files do; `binding.py` calls them.
Comes in: rows of each rank; functions that say when collectives complete.
Goes out: answers, what listeners are told, the present state.
May import: nothing of ours.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

ABI = 1
_HERE = Path(__file__).parent
LIBRARY = _HERE / "libvtime.so"
OTHERS_LISTS = ("profiles/gpu_sharing.def", "emu/contract/records.def")
"""The lists elsewhere in the repository that the C files include."""
FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")


class BuildError(Exception):
    """The library is not built, and cannot be."""


def sources() -> list[Path]:
    """The C files of the library."""
    return sorted(_HERE.glob("*.c"))


def build(target: Path = LIBRARY, sanitize: str = "") -> Path:
    """Compiles the library. `sanitize` is what ``-fsanitize=`` takes. Raises BuildError."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise BuildError("the engine of virtual time is not built and no C compiler was found: install gcc or a wheel")
    fresh = target.with_suffix(f".{os.getpid()}.new")
    checks = ["-g", f"-fsanitize={sanitize}", "-fno-sanitize-recover=all"] if sanitize else []
    command = [compiler, *FLAGS, *checks, "-o", str(fresh), *map(str, sources())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"building the engine of virtual time failed:\n{done.stderr}")
    fresh.replace(target)
    return target


def _stale() -> bool:
    if not LIBRARY.exists():
        return True
    if not (_HERE.parents[2] / ".git").exists():
        return False
    headers = [*_HERE.glob("*.h"), *_HERE.glob("*.def"), *(_HERE.parents[2] / path for path in OTHERS_LISTS)]
    return any(path.stat().st_mtime > LIBRARY.stat().st_mtime for path in [*sources(), *headers])


@cache
def library() -> ctypes.CDLL:
    """The loaded library. An installed wheel carries it; a source checkout builds it when a source is newer."""
    if _stale():
        build()
    loaded = ctypes.CDLL(str(LIBRARY))
    if loaded.vt_abi() != ABI:
        raise BuildError(f"{LIBRARY} has version {loaded.vt_abi()}, {ABI} is needed: remove it")
    return loaded
