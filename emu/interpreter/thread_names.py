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
from typing import Any

from ..private.changes import Names, changes
from .hook_library import Hook

_PR_SET_NAME = 15
_libc = ctypes.CDLL(None)


def install(hook: Hook) -> None:
    """Makes threads that are started from now on tell the hook library. Called once, in the forker."""
    changes.install("new threads", lambda names: names.change("_bootstrap_inner", lambda real: _telling(hook, real)))
    changes.install("tasks of threads", lambda names: _follow_tasks(hook, names))


def _telling(hook: Hook, bootstrap: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    names_itself = sys.version_info >= (3, 14)

    def told(self: threading.Thread) -> None:
        if not names_itself:
            _libc.prctl(_PR_SET_NAME, self.name.encode(), 0, 0, 0)
        hook.thread_looks_on(self.daemon)
        bootstrap(self)

    return told


def _follow_tasks(hook: Hook, names: Names) -> None:
    """Makes tasks of thread pools tell when they were handed over."""

    def handing_over(real: Callable[..., None]) -> Callable[..., None]:
        def init(self: Any, *arguments: Any, **options: Any) -> None:
            real(self, *arguments, **options)
            self.handed_over = hook.hands_over()

        return init

    def taking_over(real: Callable[..., None]) -> Callable[..., None]:
        def run(self: Any, *arguments: Any) -> None:
            hook.takes_over(self.handed_over)
            try:
                real(self, *arguments)
            finally:
                hook.takes_over(0)

        return run

    names.change("_WorkItem.__init__", handing_over)
    names.change("_WorkItem.run", taking_over)
