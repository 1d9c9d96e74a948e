"""Gives Python's threads their names in the operating system too, as Python 3.14 does by itself.

The hook library uses these names to tell the program's threads from PyTorch's watchdog threads, of which some are
written in C++ and some in Python.
"""

from __future__ import annotations

import ctypes
import sys
import threading

_PR_SET_NAME = 15
_libc = ctypes.CDLL(None)


def install() -> None:
    """In the forker, once: threads that are started from now on have their names."""
    if sys.version_info >= (3, 14):
        return
    bootstrap = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]  # private, but there since 3.3

    def named(self: threading.Thread) -> None:
        _libc.prctl(_PR_SET_NAME, self.name.encode(), 0, 0, 0)
        bootstrap(self)

    threading.Thread._bootstrap_inner = named  # type: ignore[attr-defined]
