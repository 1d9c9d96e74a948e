"""Settings that a process asks of Linux before it has children: the command itself, the forker and servers use them."""

from __future__ import annotations

import ctypes
import os

NO_PROCESS = "Linux permits this user or control group no further process or thread"
"""The meaning of EAGAIN when fork(2) or clone(2) returns it."""
NO_PROCESS_HINT = "look at `ulimit -u` and at pids.max of the control group; fewer ranks need fewer"
PR_SET_PDEATHSIG = 1
"""Option of prctl(2): send this process a signal when the thread that forked it ends."""
CHANGING = frozenset(("_", "OLDPWD", "PWD", "PYTEST_CURRENT_TEST", "SHLVL"))
"""Environment variables that change from command to command, and that no import looks at by their name."""
_PR_SET_CHILD_SUBREAPER = 36
_ADDR_NO_RANDOMIZE = 0x0040000
_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Calls prctl(2) with one argument. Raises OSError."""
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}): {os.strerror(error)}")


def adopt_orphans() -> None:
    """Makes descendants whose parent ends children of this process."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def spare_file() -> int:
    """Opens a descriptor to close when a connection is to be refused and no other one can be opened."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def fix_addresses() -> None:
    """Turns address randomisation off for the next program that this process executes, if the kernel permits it.

    Python orders the objects of a set by their addresses. With fixed addresses the order is the same in every run.
    """
    _libc.personality(ctypes.c_ulong(_ADDR_NO_RANDOMIZE))
