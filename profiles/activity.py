"""Turns a signature into the activity that tools which read traces of GPUs expect: a kernel with its launch, a copy, a
fill.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import NamedTuple

from profiles.errors import ProfileError
from profiles.kernel_names.demangle import demangle
from profiles.signature import Copy, Kernel, Memset, Triton, parse
from profiles.titles import title

KERNEL, COPY, FILL = "kernel", "gpu_memcpy", "gpu_memset"
_KINDS = {"h2h": "HtoH", "h2d": "HtoD", "d2h": "DtoH", "d2d": "DtoD", "p2p": "PtoP"}


class Activity(NamedTuple):
    kind: str
    """The kind of activity: KERNEL, COPY or FILL."""
    name: str
    grid: tuple[int, int, int] | None = None
    """The launch's grid; None: a library chooses it."""
    block: tuple[int, int, int] | None = None
    shared_nbytes: int = 0
    nbytes: int = 0
    """The bytes of a copy or fill."""


@lru_cache(maxsize=65536)
def activity(signature: str) -> Activity:
    """The activity of a signature. Its name is `Memcpy HtoD (Pinned -> Device)` for a copy, the demangled name with its
    parameters for a kernel, a title for a library call.
    """
    try:
        what = parse(signature)
    except ProfileError:
        return Activity(KERNEL, title(signature))
    match what:
        case Kernel():
            return Activity(KERNEL, _demangled(what.name), what.grid, what.block, what.shared_nbytes)
        case Triton():
            return Activity(KERNEL, what.name, what.grid, what.block, what.shared_nbytes)
        case Copy():
            return Activity(COPY, _copy_name(what), nbytes=what.nbytes)
        case Memset():
            return Activity(FILL, "Memset (Device)", nbytes=what.nbytes)
    return Activity(KERNEL, title(signature))


def _copy_name(copy: Copy) -> str:
    host = copy.memory.capitalize()
    ends = {"h2h": (host, host), "h2d": (host, "Device"), "d2h": ("Device", host)}
    source, target = ends.get(copy.direction, ("Device", "Device"))
    return f"Memcpy {_KINDS.get(copy.direction, copy.direction)} ({source} -> {target})"


def _demangled(name: str) -> str:
    """The kernel's name as the C++ library demangles it, which profilers use; without that library, without the
    parameters.
    """
    if not name.startswith("_Z"):
        return name
    library = _cpp_library()
    if library is None:
        return demangle(name)
    status = ctypes.c_int()
    found = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if status.value or not found:
        return demangle(name)
    text = ctypes.string_at(found).decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(found))
    return text


@lru_cache(maxsize=1)
def _cpp_library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        library.__cxa_demangle.restype = ctypes.c_void_p
    except (OSError, AttributeError):
        return None
    return library
