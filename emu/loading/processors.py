"""A rank sees the CPUs of its described server, whatever this machine has and however much of it the run may use.

What a script prints, warns of or computes from their number is then the same on every machine. Affinity is kept per
process and handed on to its children; it binds nobody here. The pools of Python's standard library have as many
processes and threads as this machine has CPUs unless the script says how many. PyTorch's operators run on one thread
here; on how many they would run on the described host decides how long they take.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

_POOLS = ("multiprocessing.pool", "multiprocess.pool", "concurrent.futures", "joblib", "loky", "asyncio")
"""Modules that start as many processes or threads as there are CPUs."""
_COUNTS = ("SC_NPROCESSORS_ONLN", "SC_NPROCESSORS_CONF")


class Processors:
    """The CPUs of one server, numbered from 0."""

    def __init__(self, count: int, threads: int, told: Callable[[int], None]) -> None:
        """`threads`: on how many PyTorch's operators run on the described host unless the script says; `told` is told
        of what it says.
        """
        self._count = count
        self._threads = threads
        self._told = told
        self._bound = frozenset(range(count))
        """The CPUs that this process may use, as it has asked."""

    def install(self, when_imported: Callable[[str, Callable[[ModuleType], None]], None]) -> None:
        """Replaces the functions that tell of CPUs, for all ranks. Called once, in the forker. `when_imported` calls a
        function when a module has been imported.
        """
        real_count, real_affinity = os.cpu_count, os.sched_getaffinity
        os.cpu_count = lambda: real_count() if _asked_by_pool() else self._count
        os.sched_getaffinity = lambda pid, /: real_affinity(pid) if _asked_by_pool() else self._affinity(pid)
        os.sched_setaffinity = self._bind
        if hasattr(os, "process_cpu_count"):  # Python 3.13
            os.process_cpu_count = lambda: real_count() if _asked_by_pool() else len(self._bound)
        real_sysconf = os.sysconf
        numbers = {os.sysconf_names[name] for name in _COUNTS}
        counts = {*_COUNTS, *numbers}
        os.sysconf = lambda name, /: self._count if name in counts else real_sysconf(name)
        when_imported("psutil", self._install_in_psutil)
        self._install_in_torch()

    def _affinity(self, pid: int) -> set[int]:
        _check_process(pid)
        return set(self._bound)

    def _bind(self, pid: int, mask: Iterable[int], /) -> None:
        bound = frozenset(range(self._count)).intersection(mask)
        _check_process(pid)
        if not bound:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if pid in (0, os.getpid()):
            self._bound = bound

    def _install_in_psutil(self, psutil: Any) -> None:
        """Replaces psutil's functions: its C code asks the system itself, and it counts cores in /sys."""
        real_count = psutil.cpu_count

        def cpu_count(logical: bool = True) -> Any:
            return real_count(logical) if _asked_by_pool() else self._count if logical else max(1, self._count // 2)

        def cpu_affinity(process: Any, cpus: Iterable[int] | None = None) -> list[int] | None:
            if cpus is None:
                return sorted(self._affinity(process.pid))
            self._bind(process.pid, tuple(cpus) or range(self._count))
            return None

        psutil.cpu_count, psutil.Process.cpu_affinity = cpu_count, cpu_affinity

    def _install_in_torch(self) -> None:
        torch: Any = sys.modules["torch"]
        real_get, real_set = torch.get_num_threads, torch.set_num_threads
        self._told(self._threads)

        def set_num_threads(count: int) -> None:
            real_set(min(count, real_get()))
            self._threads = count
            self._told(count)

        torch.get_num_threads = lambda: self._threads
        torch.set_num_threads = set_num_threads
        torch.get_num_interop_threads = lambda: max(1, self._count // 2)


def _check_process(pid: int) -> None:
    """Checks that there is such a process, as the system call would. 0 is the calling process."""
    if pid:
        os.kill(pid, 0)


def _asked_by_pool() -> bool:
    name = sys._getframe(2).f_globals.get("__name__", "")
    return str(name).startswith(_POOLS)
