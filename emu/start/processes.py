"""What Linux offers to keep a tree of processes together: ties to the parent, the list of descendants, killing them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

from ..contract.process_setup import prctl

_PR_SET_PDEATHSIG = 1
# Bound before emu.clock.virtual_clock gives ranks another time: what waits here waits for processes.
_now, _sleep = time.monotonic, time.sleep


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process as soon as `parent`, which forked it, ends - also if it has ended already."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def outlive_parent() -> None:
    prctl(_PR_SET_PDEATHSIG, 0)


def descendants(ancestor: int) -> list[int]:
    """Process ids below `ancestor`, zombies excluded."""
    children: dict[int, list[int]] = {}
    zombies = set()
    for pid, parent, state in _processes():
        children.setdefault(parent, []).append(pid)
        if state == "Z":
            zombies.add(pid)
    found, waiting = [], [ancestor]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return [pid for pid in found if pid not in zombies]


def _processes() -> Iterator[tuple[int, int, str]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            yield int(name), int(fields[1]), fields[0]


def kill_descendants(limit_s: float = 10.0) -> list[int]:
    """Kills everything below this process, which must adopt orphans, and reaps it; returns what outlives `limit_s`."""
    until = _now() + limit_s
    while True:
        left = descendants(os.getpid())
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        reap()
        if not left or _now() > until:
            return left
        _sleep(0.005)


def reap() -> list[tuple[int, int]]:
    """Children that have ended: process id and wait status."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))


def exit_of(status: int) -> tuple[int, int]:
    """A wait status as (return code, signal): one of the two is 0."""
    return (0, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), 0)
