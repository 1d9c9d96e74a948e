"""Where a rank is at this moment: its threads' stacks, written to a file when the coordinator sends a signal.

Python's faulthandler writes them from the signal's handler, without Python's lock: also of a program that is deep in C
code, or in an endless loop.
"""

from __future__ import annotations

import faulthandler
import os

from ..contract.stack_request import SIGNAL, path_of


def register(folder: str, rank: int) -> None:
    """In the rank, before it says hello. Crashes leave their stack in the rank's log besides."""
    descriptor = os.open(path_of(folder, rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    faulthandler.register(SIGNAL, file=descriptor, all_threads=True, chain=False)
    faulthandler.enable(file=2)
