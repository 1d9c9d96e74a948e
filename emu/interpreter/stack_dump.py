"""Writes the stacks of a rank's threads to a file when the coordinator sends a signal.

Python's faulthandler writes them from the signal handler, without Python's lock: so a rank that runs C code or an
endless loop answers as well.
"""

from __future__ import annotations

import faulthandler
import os

from ..contract.stack_request import SIGNAL, path_of


def register(folder: str, rank: int) -> None:
    """In the rank, before it connects to the coordinator. Also writes the stack to stderr when the process crashes."""
    descriptor = os.open(path_of(folder, rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    faulthandler.register(SIGNAL, file=descriptor, all_threads=True, chain=False)
    faulthandler.enable(file=2)
