"""Tells the hook library about threads that Python starts.

They get their names in the operating system too, as Python 3.14 gives them by itself: the library uses these names to
tell the program's threads from PyTorch's watchdog threads, of which some are written in C++ and some in Python. Those
of the program's look on until they give the GPU work (emu/hook/threads/onlooker.c).
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable

from ..private.changes import changes
from .hook_library import Hook

_PR_SET_NAME = 15
_libc = ctypes.CDLL(None)


def install(hook: Hook) -> None:
    """Makes threads that are started from now on tell the hook library. Called once, in the forker."""
    changes.install("new threads", lambda names: names.change("_bootstrap_inner", lambda real: _telling(hook, real)))


def _telling(hook: Hook, bootstrap: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    names_itself = sys.version_info >= (3, 14)

    def told(self: threading.Thread) -> None:
        if not names_itself:
            _libc.prctl(_PR_SET_NAME, self.name.encode(), 0, 0, 0)
        hook.thread_looks_on(self.daemon)
        bootstrap(self)

    return told
