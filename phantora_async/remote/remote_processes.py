"""Looks at the threads of processes on other machines: the machine is asked, and its answer is used once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phantora_async.liveness.proc_fs import ProcFs
from phantora_async.liveness.sleep_detector import NotKnownYet, Seen, Thread

_PID_BITS = 32


def pid_of(machine: int, pid: int) -> int:
    """A number for a process of another machine, which no process of this machine has."""
    return (machine + 1) << _PID_BITS | pid


class RemoteProcesses:
    """Implements ``Processes`` for this machine and others. `ask` makes a machine look at one process."""

    def __init__(self, ask: Callable[[int, int], None]) -> None:
        self._ask = ask
        self._here = ProcFs()
        self._seen: dict[int, Seen | None] = {}
        """Answers that have not been used, by number of the process."""
        self._asked_ns: dict[int, int] = {}
        """The real times in ns of questions that have not been answered."""

    def look(self, pid: int) -> Seen | None:
        """The threads of the process. Raises NotKnownYet until its machine has answered."""
        machine = (pid >> _PID_BITS) - 1
        if machine < 0:
            return self._here.look(pid)
        if pid in self._seen:
            return self._seen.pop(pid)
        if pid not in self._asked_ns:
            self._asked_ns[pid] = self.now_ns()
            self._ask(machine, pid & ((1 << _PID_BITS) - 1))
        raise NotKnownYet

    def now_ns(self) -> int:
        return self._here.now_ns()

    def answered(self, machine: int, pid: int, threads: dict[str, list[Any]] | None) -> None:
        """Takes the answer of a machine. `threads`: the fields of each thread; None if the process has ended. Raises
        ValueError for other fields.
        """
        number = pid_of(machine, pid)
        asked_ns = self._asked_ns.pop(number, None)
        if asked_ns is None:
            return  # nobody asked
        if threads is None:
            self._seen[number] = None
            return
        seen = {int(thread): _thread(fields) for thread, fields in threads.items()}
        self._seen[number] = Seen(seen, asked_ns, self.now_ns())


def _thread(fields: Any) -> Thread:
    """The thread with these fields. Raises ValueError."""
    match fields:
        case [str() as name, bool() as main, bool() as sleeping, int() as used_ns, bool() as stopped]:
            return Thread(name, main, sleeping, used_ns, stopped)
    raise ValueError(f"a thread that is {fields!r:.40}")
