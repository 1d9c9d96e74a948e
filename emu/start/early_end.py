"""A run that ends before its script does: after `--steps`, at `--until`, or at Ctrl-C.

The script is not told: no exception is raised in it, its exit handlers and `finally` blocks do not run. What it has
written to files and not flushed is flushed.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
from collections.abc import Callable

from ..interpreter.hook_library import Hook

_WRITERS = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
"""Text first: it flushes what is below it."""


def flush_files() -> None:
    """Flushes the files that this process has open for writing, Python's and C's."""
    found = gc.get_objects()
    for kind in _WRITERS:
        for one in found:
            if issubclass(type(one), kind):  # isinstance would ask proxies what they are
                with contextlib.suppress(Exception):
                    one.flush()
    ctypes.CDLL(None).fflush(None)


class StepLimit:
    """Holds the script when it has done so many steps: at the end of one step more, so that all that it says about the
    last one has been said. That step is not counted.
    """

    def __init__(self, hook: Hook, steps: int, last_words: Callable[[], None]) -> None:
        """`steps`: 0 for no limit. `last_words` tells the coordinator what else it is to know."""
        self._hook = hook
        self._steps = steps
        self._done = 0
        self._last_words = last_words

    def step_ends(self) -> None:
        """Counts a step. Does not return after the last one."""
        if self._steps and self._done == self._steps:
            self._hook.uncounted(1)
            flush_files()
            self._last_words()
            self._hook.steps_done()
        self._done += 1
