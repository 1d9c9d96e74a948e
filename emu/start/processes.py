"""Keeps a tree of processes together: death with the parent, reaping, killing everything below."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
from collections.abc import Callable, Collection, Container, Iterator
from types import FrameType
from typing import NamedTuple

from ..contract.process_setup import PR_SET_PDEATHSIG, prctl
from ..interpreter import real_time


class Ended(NamedTuple):
    """The way in which a child process ended."""

    pid: int
    code: int
    """Its exit code; 0 if a signal ended it."""
    signal: int
    """The signal that ended it; 0 if none did."""


def close_others(kept: Container[int]) -> None:
    """Closes the files of the shell that the command has inherited: they are none of the script's business."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # the folder's own
                os.close(int(name))


def die_with_parent(parent: int) -> None:
    """Makes this process get SIGKILL as soon as `parent`, which forked it, ends; it ends at once if `parent` has ended.
    To the first process of a pid namespace its parent has the id 0.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def fork(handled: Collection[signal.Signals]) -> int:
    """Forks like os.fork, for a process that handles these signals itself. A signal that comes for the new process,
    however early, does what it does by default: this process's handler would take it for nothing there.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    try:
        pid = os.fork()
        if pid == 0:
            for number in handled:
                signal.signal(number, signal.SIG_DFL)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def ending_with_parent(remove: str) -> Iterator[None]:
    """A context in which this process ends as soon as its parent ends, and first removes the folder `remove`."""

    def end(number: int, frame: FrameType | None) -> None:
        shutil.rmtree(remove, ignore_errors=True)
        os._exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    try:
        yield
    finally:
        prctl(PR_SET_PDEATHSIG, 0)
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def ending_with_peer(descriptor: int, closed: Callable[[], bool], remove: str) -> Iterator[None]:
    """A context in which this process ends as soon as the other end of a socket has closed, and first removes the
    folder `remove`. `descriptor`: this end; `closed` tells whether the other one has closed. The kernel signals
    whatever happens there, because this process is busy and reads nothing.
    """

    def look(number: int, frame: FrameType | None) -> None:
        if closed():
            shutil.rmtree(remove, ignore_errors=True)
            os._exit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGIO, look)
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
    look(signal.SIGIO, None)  # it may have closed before
    try:
        yield
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
        signal.signal(signal.SIGIO, before)


def kill_descendants(limit_s: float = 10.0) -> None:
    """Kills everything below this process, which must adopt orphans, and reaps it. Gives up after `limit_s` real
    seconds, on processes that the kernel does not end.
    """
    deadline_s = real_time.monotonic() + limit_s
    while left := _descendants():
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap()
        if real_time.monotonic() > deadline_s:
            return
        real_time.sleep(0.005)
    reap()


def reap() -> list[Ended]:
    """Returns the children that have ended since the last call."""
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


class _Process(NamedTuple):
    pid: int
    parent: int
    state: str
    """The letter of the state in /proc/<pid>/stat: "Z" is a zombie."""


def _processes() -> Iterator[_Process]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            yield _Process(int(name), int(fields[1]), fields[0])


def _descendants() -> list[int]:
    """Returns the ids of processes below this one, zombies excluded."""
    children: dict[int, list[_Process]] = {}
    for process in _processes():
        children.setdefault(process.parent, []).append(process)
    found, unvisited = [], [os.getpid()]
    while unvisited:
        for child in children.get(unvisited.pop(), []):
            unvisited.append(child.pid)
            if child.state != "Z":
                found.append(child.pid)
    return found
