"""Names of Python threads that the operating system knows too, as Python 3.14 gives them.

The hook library tells by its name whether a thread belongs to the program or only watches it, as PyTorch's watchdogs in
C++ and in Python do.
"""

from __future__ import annotations

import ctypes
import sys
import threading

_PR_SET_NAME = 15
_libc = ctypes.CDLL(None)


def install() -> None:
    """From now on; before the script starts its threads."""
    if sys.version_info >= (3, 14):
        return
    bootstrap = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]  # private, but there since 3.3

    def named(self: threading.Thread) -> None:
        _libc.prctl(_PR_SET_NAME, self.name.encode(), 0, 0, 0)
        bootstrap(self)

    threading.Thread._bootstrap_inner = named  # type: ignore[attr-defined]
