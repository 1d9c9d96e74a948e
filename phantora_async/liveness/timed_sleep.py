"""Reads until when threads sleep that will wake up by themselves: in Python's time.sleep, which takes real time in
threads beside a rank's main one.

The kernel reports the system call of a thread and its arguments. Where it does not report this, no thread is known to
wake up.
"""

from __future__ import annotations

import os
import platform
import struct
from contextlib import suppress

from emu.contract.definitions.thread_names import SERVES, WATCHES
from phantora_async.liveness.proc_fs import memory_of, text_of

_CLOCK_NANOSLEEP = {"x86_64": 230, "aarch64": 115}.get(platform.machine())
_CLOCK_MONOTONIC, _TIMER_ABSTIME = 1, 1
_TIMESPEC = struct.Struct("qq")


def sleeps_until_s(pid: int) -> float:
    """The instant of the monotonic clock at which the last of the process's threads that are in a timed sleep wakes up;
    0.0 if none is.
    """
    latest_s = 0.0
    with suppress(OSError):  # it has ended
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError, ValueError, struct.error):
                if not text_of(f"/proc/{pid}/task/{task}/comm").startswith((*SERVES, *WATCHES)):
                    latest_s = max(latest_s, _wakes_up_s(pid, task))
    return latest_s


def _wakes_up_s(pid: int, task: str) -> float:
    words = text_of(f"/proc/{pid}/task/{task}/syscall").split()
    if len(words) < 4 or not words[0].isdigit() or int(words[0]) != _CLOCK_NANOSLEEP:
        return 0.0
    clock, flags, deadline = (int(word, 16) for word in words[1:4])
    if clock != _CLOCK_MONOTONIC or not flags & _TIMER_ABSTIME:
        return 0.0
    seconds, ns = _TIMESPEC.unpack(memory_of(pid, deadline, _TIMESPEC.size))
    return float(seconds + ns * 1e-9)
