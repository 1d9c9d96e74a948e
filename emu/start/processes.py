"""Linux's means to keep a tree of processes together: death with the parent, adopted orphans, killing all below."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from typing import NamedTuple

from ..interpreter import real_time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ADDR_NO_RANDOMIZE = 0x0040000
_libc = ctypes.CDLL(None, use_errno=True)


class Ended(NamedTuple):
    """How a child process ended."""

    pid: int
    code: int
    """Its exit code; 0 if a signal ended it."""
    signal: int
    """The signal that ended it; 0 if none did."""


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}): {os.strerror(error)}")


def die_with_parent(parent: int) -> None:
    """This process gets SIGKILL as soon as `parent`, which forked it, ends; it ends at once if `parent` has ended."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def outlive_parent() -> None:
    """Takes `die_with_parent` back."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def fix_addresses() -> None:
    """The next program of this process, and all processes below it, have the same addresses in every run, where the
    kernel permits it. Python orders objects in sets by their addresses.
    """
    _libc.personality(ctypes.c_ulong(_ADDR_NO_RANDOMIZE))


def adopt_orphans() -> None:
    """From now on descendants whose parent ends become children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(ancestor: int) -> list[int]:
    """Process ids below `ancestor`, zombies excluded."""
    children: dict[int, list[int]] = {}
    zombies = set()
    for process in _processes():
        children.setdefault(process.parent, []).append(process.pid)
        if process.state == "Z":
            zombies.add(process.pid)
    found, waiting = [], [ancestor]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return [pid for pid in found if pid not in zombies]


class _Process(NamedTuple):
    pid: int
    parent: int
    state: str
    """As in /proc/<pid>/stat: "Z" is a zombie."""


def _processes() -> Iterator[_Process]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            yield _Process(int(name), int(fields[1]), fields[0])


def kill_descendants(limit_s: float = 10.0) -> None:
    """Kills everything below this process, which must adopt orphans, and reaps it. Gives up after `limit_s` real
    seconds, on processes that the kernel does not end.
    """
    deadline_s = real_time.monotonic() + limit_s
    while left := descendants(os.getpid()):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap()
        if real_time.monotonic() > deadline_s:
            return
        real_time.sleep(0.005)
    reap()


def reap() -> list[Ended]:
    """Children that have ended since the last call."""
    ended: list[Ended] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        if os.WIFSIGNALED(status):
            ended.append(Ended(pid, 0, os.WTERMSIG(status)))
        else:
            ended.append(Ended(pid, os.WEXITSTATUS(status), 0))
