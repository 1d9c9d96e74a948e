"""Finds out whether a process waits for somebody to connect. Such a program is idle, and not stuck.

The kernel reports in which system call a thread is, and with which descriptors: in accept(2), or in a wait for several
descriptors one of which listens. Where it does not report this, no process counts as listening.
"""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from emu.contract.definitions.thread_names import SERVES, WATCHES
from phantora_async.liveness.proc_fs import memory_of, text_of

_CALLS = {
    "x86_64": {"accept": (43, 288), "epoll": (232, 281, 441), "poll": (7, 271), "select": (23, 270)},
    "aarch64": {"accept": (202, 242), "epoll": (22, 441), "poll": (73,), "select": (72,)},
}.get(platform.machine(), {})
"""The numbers of Linux's system calls that wait, by machine."""
_EPOLL_PWAIT2 = 441
"""The one wait of epoll whose fourth argument is the address of a time, and not milliseconds (-1: for ever)."""
_POLLED = struct.Struct("ihh")
_POLLING_MS = 10
"""The longest wait of a thread that only polls: gloo's event loop wakes up every 10 ms (gloo/transport/tcp/loop.cc). It
has a socket that listens for as long as a process group lives, and in PyTorch before 2.15 the name of its program.
Nobody connects once the group is complete, so it says nothing about its rank. A program that serves waits longer.
"""
_MOST = 1024
"""The most descriptors of one wait that are looked at."""
_LISTENS_TCP = "0A"
_LISTENS_UNIX = 0x10000
"""The flag __SO_ACCEPTCON in /proc/net/unix."""


class Listener(NamedTuple):
    pid: int
    name: str
    """The name of the process, as `ps` shows it."""


def listener(pid: int, *, is_rank: bool) -> Listener | None:
    """The process if it listens, else None. A rank's first thread may listen on any socket, else it must be one of the
    network's: workers of Python (multiprocessing) listen on local ones for their own purposes. Threads other than
    the first must wait for longer than _POLLING_MS at a time.
    """
    with suppress(OSError, ValueError):
        for task in os.listdir(f"/proc/{pid}/task"):
            name = text_of(f"/proc/{pid}/task/{task}/comm").strip()
            if name.startswith((*SERVES, *WATCHES)):
                continue
            first = int(task) == pid
            local = is_rank and first
            waits = set(_waits_for(pid, task, polls=first))
            if waits and any(_listens(pid, number, local) for number in waits):
                return Listener(pid, text_of(f"/proc/{pid}/comm").strip())
    return None


def _waits_for(pid: int, task: str, *, polls: bool) -> Iterator[int]:
    """Yields the descriptors that the thread waits for in a system call. `polls`: also if it only looks at them, for
    _POLLING_MS at most.
    """
    words = text_of(f"/proc/{pid}/task/{task}/syscall").split()
    if not words or not words[0].isdigit():
        return  # it runs
    call = next((kind for kind, numbers in _CALLS.items() if int(words[0]) in numbers), None)
    if call is None:
        return
    first, second, _, fourth = (int(word, 16) for word in words[1:5])
    if call == "accept":
        yield first
    elif call == "epoll":
        if not polls and int(words[0]) != _EPOLL_PWAIT2 and fourth <= _POLLING_MS:
            return
        for line in text_of(f"/proc/{pid}/fdinfo/{first}").splitlines():
            if line.startswith("tfd:"):
                yield int(line.split()[1])
    elif call == "poll":
        for place in range(min(second, _MOST)):
            yield _POLLED.unpack(memory_of(pid, first + place * _POLLED.size, _POLLED.size))[0]
    elif second:
        bits = int.from_bytes(memory_of(pid, second, (min(first, _MOST) + 63) // 64 * 8), "little")
        yield from (number for number in range(min(first, _MOST)) if bits >> number & 1)


def _listens(pid: int, number: int, local: bool) -> bool:
    target = os.readlink(f"/proc/{pid}/fd/{number}")
    if not target.startswith("socket:["):
        return False
    inode = target[len("socket:[") : -1]
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in text_of(f"/proc/{pid}/net/{table}").splitlines()[1:]:
                words = line.split()
                if words[9] == inode:
                    return words[3] == _LISTENS_TCP
    if local:
        for line in text_of(f"/proc/{pid}/net/unix").splitlines()[1:]:
            words = line.split()
            if words[6] == inode:
                return bool(int(words[3], 16) & _LISTENS_UNIX)
    return False
