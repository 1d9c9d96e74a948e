"""The way in which the coordinator asks a rank for its Python stacks: the signal that it sends, the file that the rank
writes.
"""

from __future__ import annotations

import os
import signal

SIGNAL = signal.SIGRTMAX - 3
"""A real-time signal. The C library and PyTorch use none that is this high."""
WITHOUT_LOCK = signal.SIGRTMAX - 4
"""The signal that the rank sends to itself if no thread of its gets Python's lock."""


def path_of(folder: str, rank: int) -> str:
    """Returns the rank's file. The rank creates it before it connects, so a rank that has connected may be
    signalled."""
    return os.path.join(folder, f"rank{rank}.stack")
