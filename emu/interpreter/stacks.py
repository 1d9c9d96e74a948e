"""Where a rank is at this moment: its threads' stacks, written to a file when the coordinator sends a signal.

Python's faulthandler writes them from the signal's handler, without Python's lock: also of a program that is deep in C
code, or in an endless loop.
"""

from __future__ import annotations

import faulthandler
import os
import signal

SIGNAL = signal.SIGRTMAX - 3
"""A real-time signal, of which the C library and PyTorch use none up here."""


def path_of(folder: str, rank: int) -> str:
    """The rank's file. It exists before the coordinator hears of the rank: then the signal may be sent."""
    return os.path.join(folder, f"rank{rank}.stack")


def register(folder: str, rank: int) -> None:
    """In the rank, before it says hello. Crashes leave their stack in the rank's log besides."""
    descriptor = os.open(path_of(folder, rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    faulthandler.register(SIGNAL, file=descriptor, all_threads=True, chain=False)
    faulthandler.enable(file=2)
