"""Reads the threads of a process and of its descendants from /proc.

/proc is read directly, because psutil provides neither the state of a thread nor its processor time in units below 10
ms.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass

from emu.contract.definitions.thread_names import AWAKE, MAIN, STANDS_FOR
from phantora_async.liveness.sleep_detector import Seen, Thread

_MOST_NBYTES = 1 << 16
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PROCESSOR_TIME = 2
"""The value CPUCLOCK_SCHED of Linux: with the complement of a process's number it forms a clock's number.
``clock_getcpuclockid(3)``.
"""


@dataclass(frozen=True, slots=True)
class _Known:
    """The findings of one look at a process and its descendants."""

    threads: dict[int, Thread]
    states: dict[str, str]
    """The states of the threads, as the kernel writes them, by the file that has them."""
    clocks: dict[int, int]
    """The processor time that all threads of a process together had used before the look, by process."""

    def still_holds(self) -> bool:
        """Returns true if no thread has run since, or become ready to run. A process that starts or ends a thread or a
        process has run.
        """
        try:
            return self._none_ran() and self._states_are_the_same() and self._none_ran()
        except OSError:  # one of them has ended
            return False

    def _none_ran(self) -> bool:
        return all(_clock_ns(process) == used_ns for process, used_ns in self.clocks.items())

    def _states_are_the_same(self) -> bool:
        return all(_state(_read(file)) == state for file, state in self.states.items())


class ProcFs:
    """Implements ``Processes`` with /proc. A process that the server forks for a program that the rank starts counts as
    the rank's descendant.

    Most looks are at processes that have not run since the last one: then only the states of their threads are read.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        self._processes: dict[int, list[int]] = {}
        """The processes that the last complete look has found, by their root."""

    def look(self, pid: int) -> Seen | None:
        since_ns = self.now_ns()
        threads = self.threads(pid)
        return None if threads is None else Seen(threads, since_ns, self.now_ns())

    def threads(self, pid: int) -> dict[int, Thread] | None:
        """The threads of the process; None if it has ended."""
        known = self._known.get(pid)
        return known.threads if known is not None and known.still_holds() else self._read_all(pid)

    def family(self, pid: int) -> list[int]:
        """The process and its descendants."""
        self._known.pop(pid, None)
        return [] if self.threads(pid) is None else self._processes[pid]

    def _read_all(self, pid: int) -> dict[int, Thread] | None:
        clocks = _clocks(self._processes.pop(pid, [pid]))
        self._known.pop(pid, None)
        found: dict[int, Thread] = {}
        states: dict[str, str] = {}
        processes: list[int] = []
        stands_for = False
        todo = [pid]
        while todo:
            process = todo.pop()
            folder = f"/proc/{process}/task"
            try:
                tasks = os.listdir(folder)
            except (FileNotFoundError, ProcessLookupError):
                if process == pid:
                    return None
                continue
            processes.append(process)
            for task in tasks:
                try:
                    stat = _read(f"{folder}/{task}/stat")
                    used_ns = int(_read(f"{folder}/{task}/schedstat").split()[0])
                    todo += [int(child) for child in _read(f"{folder}/{task}/children").split()]
                except (FileNotFoundError, ProcessLookupError):
                    continue
                name, _, rest = stat.partition("(")[2].rpartition(")")
                number = int(task)
                main = number == process or name.startswith(MAIN)
                state = states[f"{folder}/{task}/stat"] = rest.split()[0]
                sleeping = state in "SZTt" and name != AWAKE and not (state == "S" and _waits_for_values(folder, task))
                if number == process and name.startswith(STANDS_FOR):
                    stands_for = True  # the answer then depends on processes that are not descendants
                    forked = _forked_by_parent(pid, name.removeprefix(STANDS_FOR).lstrip())
                    todo += forked
                    # Else it is about to be told that the other has ended; or it was, and waits for the rank's look.
                    sleeping = sleeping and (bool(forked) or state == "Z")
                if number == process:
                    used_ns += _of_children_ns(rest)
                found[number] = Thread(name, main, sleeping, used_ns, state in "Tt")
        self._processes[pid] = processes
        if clocks is not None and clocks.keys() == set(processes) and not stands_for:
            self._known[pid] = _Known(found, states, clocks)
        return found

    def now_ns(self) -> int:
        return time.monotonic_ns()


def parent(pid: int) -> int:
    """The parent's process id; 0 if the process has ended."""
    try:
        return int(_read(f"/proc/{pid}/stat").rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _of_children_ns(stat: str) -> int:
    """The processor time in ns of descendants that have ended and that the process has waited for: a program that
    starts one short command after the other works. `stat`: the fields after the process's name.
    """
    words = stat.split()
    return (int(words[13]) + int(words[14])) * _TICK_NS


def _clocks(processes: Iterable[int]) -> dict[int, int] | None:
    """The processor time by process; None if one of them has ended."""
    try:
        return {process: _clock_ns(process) for process in processes}
    except OSError:
        return None


def _clock_ns(process: int) -> int:
    """The processor time in ns that the threads of a process have used, including those that have ended. Raises
    OSError.
    """
    return time.clock_gettime_ns(~process << 3 | _PROCESSOR_TIME)


def _state(stat: str) -> str:
    return stat.rpartition(")")[2].split(maxsplit=1)[0]


def _waits_for_values(folder: str, task: str) -> bool:
    """Returns true if another process of the run fills a page that the thread touches. See emu/unread."""
    try:
        return _read(f"{folder}/{task}/wchan") == "handle_userfault"
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False


def _forked_by_parent(pid: int, own_id: str) -> list[int]:
    """The child of the process's parent whose id in its own namespace is `own_id`; none if it has ended."""
    try:
        server = parent(pid)
        siblings = _read(f"/proc/{server}/task/{server}/children").split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(sibling) for sibling in siblings if _own_id(sibling) == own_id]


def _own_id(pid: str) -> str:
    """The process's id in its innermost namespace; empty if it has ended, though nobody may have waited for it."""
    try:
        status = _read(f"/proc/{pid}/status")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    if status.partition("State:\t")[2].startswith("Z"):
        return ""
    return status.partition("NSpid:")[2].partition("\n")[0].rpartition("\t")[2]


def _read(path: str) -> str:
    """Reads a file of /proc. Path.read_text takes five times as long, and there are dozens of files for each rank."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, _MOST_NBYTES).decode(errors="replace")
    finally:
        os.close(file)


def memory_of(pid: int, at: int, nbytes: int) -> bytes:
    """Reads the memory of a process. Raises OSError."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(at)
        return memory.read(nbytes)


def text_of(path: str) -> str:
    """Reads a file of /proc of any length. Raises OSError."""
    with open(path, errors="replace") as file:
        return file.read()
