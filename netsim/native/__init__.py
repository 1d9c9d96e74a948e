"""The solver: a C library without dependencies, and its Python bindings.

Comes in: links, flows and changes of links as integers (ticks, rate units). Goes out: completions, moved
completions and rate segments (``core`` has the typed calls). May import: ``netsim.errors``.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from netsim.errors import NetsimError

ABI = 3
_HERE = Path(__file__).parent
LIBRARY = _HERE / "libnetsim.so"
FLAGS = ("-std=c11", "-O3", "-fno-semantic-interposition", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror")

_Int64s = ctypes.POINTER(ctypes.c_int64)


COUNTERS = ("events", "solves", "filled", "rollbacks", "redone", "flows", "segments", "bytes")


class MovedEnd(ctypes.Structure):
    """The structure ``ns_moved``."""

    _fields_ = [("flow", ctypes.c_int64), ("before", ctypes.c_int64), ("after", ctypes.c_int64)]


class RateStretch(ctypes.Structure):
    """The structure ``ns_segment``."""

    _fields_ = [("at", ctypes.c_int64), ("rate", ctypes.c_int64), ("path", ctypes.c_int32), ("pad", ctypes.c_int32)]


class Counters(ctypes.Structure):
    """The structure ``ns_counters``."""

    _fields_ = [(name, ctypes.c_int64) for name in COUNTERS]


_net, _i64, _int, _bytes = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_char_p
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "ns_abi": (_int, []),
    "ns_new": (_net, [_int, _bytes]),
    "ns_free": (None, [_net]),
    "ns_add": (_i64, [_net, _i64, _i64, _i64, _int, _bytes, _bytes, _bytes, _int, _bytes]),
    "ns_redirect": (None, [_net, _i64, _int, _bytes, _bytes, _bytes, _int, _bytes]),
    "ns_retime": (None, [_net, _i64, _i64]),
    "ns_retract": (None, [_net, _i64]),
    "ns_capacity": (None, [_net, _int, _i64, _i64]),
    "ns_advance": (_int, [_net, _i64]),
    "ns_next": (_int, [_net]),
    "ns_flows": (_Int64s, [_net]),
    "ns_ticks": (_Int64s, [_net]),
    "ns_moves": (_int, [_net, ctypes.POINTER(ctypes.POINTER(MovedEnd))]),
    "ns_completion": (_i64, [_net, _i64]),
    "ns_segments": (_int, [_net, _i64, ctypes.POINTER(ctypes.POINTER(RateStretch))]),
    "ns_commit": (_int, [_net, _i64]),
    "ns_play": (None, [_net, _int, *[_net] * 8]),
    "ns_count": (None, [_net, ctypes.POINTER(Counters)]),
    "nt_new": (_net, [_int, *[_bytes] * 5]),
    "nt_free": (None, [_net]),
    "nt_add": (_i64, [_net, _i64, _i64, _i64, _i64, _int, _int, _i64, _int, _bytes, _bytes, _bytes, _int, _bytes]),
    "nt_renumber": (_int, [_net, _i64]),
    "nt_redirect": (None, [_net, _i64, _int, _bytes, _bytes, _bytes, _int, _bytes]),
    "nt_retime": (None, [_net, _i64, _i64]),
    "nt_retract": (None, [_net, _i64]),
    "nt_capacity": (None, [_net, _int, _i64, _i64]),
    "nt_advance": (_int, [_net, _i64]),
    "nt_next": (_int, [_net]),
    "nt_flows": (_Int64s, [_net]),
    "nt_ticks": (_Int64s, [_net]),
    "nt_moves": (_int, [_net, ctypes.POINTER(ctypes.POINTER(MovedEnd))]),
    "nt_completion": (_i64, [_net, _i64]),
    "nt_segments": (_int, [_net, _i64, ctypes.POINTER(ctypes.POINTER(RateStretch))]),
    "nt_commit": (_int, [_net, _i64]),
    "nt_count": (None, [_net, ctypes.POINTER(Counters)]),
}


def sources() -> list[Path]:
    """The C files of the library."""
    return sorted(_HERE.glob("*.c"))


def compile_command(compiler: str, target: Path, extra: tuple[str, ...] = ()) -> list[str]:
    """The command that builds the library."""
    return [compiler, *FLAGS, *extra, "-o", str(target), *map(str, sources())]


def build(target: Path = LIBRARY) -> Path:
    """Compiles the library. Raises NetsimError if there is no compiler or it fails."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NetsimError("netsim's native library is not built and no C compiler was found: install gcc or a wheel")
    fresh = target.with_suffix(f".{os.getpid()}.new")
    done = subprocess.run(compile_command(compiler, fresh), capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetsimError(f"building netsim's native library failed:\n{done.stderr}")
    fresh.replace(target)
    return target


def _stale() -> bool:
    if not LIBRARY.exists():
        return True
    if not (_HERE.parents[1] / ".git").exists():
        return False
    inputs = [*sources(), *_HERE.glob("*.h")]
    return any(path.stat().st_mtime > LIBRARY.stat().st_mtime for path in inputs)


@cache
def library() -> ctypes.CDLL:
    """The loaded library. An installed wheel carries it; a source checkout builds it when a source is newer."""
    if _stale():
        build()
    lib = ctypes.CDLL(str(LIBRARY))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    if lib.ns_abi() != ABI:
        raise NetsimError(
            f"{LIBRARY} has version {lib.ns_abi()}, {ABI} is needed: rebuild it (python -m netsim.native)"
        )
    return lib
