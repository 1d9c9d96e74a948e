"""Writes the stacks of a rank's threads to a file when the coordinator sends a signal.

Python's faulthandler writes them from the signal handler, without Python's lock: so a rank that runs C code or an
endless loop answers as well.
"""

from __future__ import annotations

import faulthandler
import os
import signal

SIGNAL = signal.SIGRTMAX - 3
"""A real-time signal that neither the C library nor PyTorch uses."""


def path_of(folder: str, rank: int) -> str:
    """The file that rank `rank` writes to. It exists before the rank connects to the coordinator, which may send the
    signal from then on.
    """
    return os.path.join(folder, f"rank{rank}.stack")


def register(folder: str, rank: int) -> None:
    """In the rank, before it connects to the coordinator. Also writes the stack to stderr when the process crashes."""
    descriptor = os.open(path_of(folder, rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    faulthandler.register(SIGNAL, file=descriptor, all_threads=True, chain=False)
    faulthandler.enable(file=2)
