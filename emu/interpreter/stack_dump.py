"""Writes the stacks of a rank's threads to a file when the coordinator sends a signal.

Python code writes them, with Python's lock (emu/hook/threads/stacks.c). Where C code keeps the lock, Python's
faulthandler writes them, from a signal handler.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from ..contract.stack_request import SIGNAL, WITHOUT_LOCK, path_of
from .hook_library import Hook


def register(hook: Hook, folder: str, rank: int) -> None:
    """Makes the rank answer the signal. Called in the rank, before it connects to the coordinator. Also makes the
    process write its stack to stderr when it crashes.
    """
    descriptor = os.open(path_of(folder, rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    faulthandler.enable(file=2)
    faulthandler.register(WITHOUT_LOCK, file=descriptor, all_threads=True, chain=False)
    hook.answer_stacks(SIGNAL, WITHOUT_LOCK, lambda: _write(descriptor))


def _write(descriptor: int) -> None:
    """Writes the stacks, on a thread that has no other purpose. The script's finalizers, which free GPU memory, must
    not run here.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        os.write(descriptor, "\n".join(_lines()).encode(errors="replace"))
    finally:
        if collects:
            gc.enable()


def _lines() -> Iterator[str]:
    """Yields the lines that faulthandler writes when the main thread has got the signal."""
    main, this = threading.main_thread().ident, threading.get_ident()
    for thread, frame in sorted(sys._current_frames().items(), key=lambda item: item[0] == main):
        if thread != this:
            yield f"{'Current thread' if thread == main else 'Thread'} {thread:#018x} (most recent call first):"
            yield from _stack(frame)
            yield ""


def _stack(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        code = frame.f_code
        yield f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}'
        frame = frame.f_back
