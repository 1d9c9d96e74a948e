"""Detects that a rank is asleep where no record says so: in a socket, in a file lock, waiting for a child process.

Two looks at /proc, at every thread of the rank and of its child processes, decide. A rank is asleep if all were
sleeping both times and used no processor time between. A program that polls with short real sleeps uses a little time
in each turn; it counts as asleep if several looks in a row find no more than that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from emu.contract.definitions.thread_names import SERVES, WATCHES

POLLING_SHARE = 0.1
"""Processor time, as a share of real time, that a program may spend on polling."""
POLLING_LOOKS = 6
HELPERS_SHARE = 0.01
"""The processor time, as a share of real time, that threads other than the main ones may spend: many library threads
have no name to recognise them by.
"""
RESTLESS_NS = 20_000_000_000
"""The ns for which main threads must have rested before others may spend more on polling."""
RESTLESS_SHARE = 0.5
"""The share that they may spend then. A thread that has a processor, or waits for one, works however long: nobody can
tell whether it polls.
"""


@dataclass(frozen=True, slots=True)
class Thread:
    name: str
    main: bool
    """True for the first thread of its process, and for a thread that runs backward passes."""
    sleeping: bool
    used_ns: int
    stopped: bool = False
    """True if a signal has stopped it (SIGSTOP and the like, or a debugger); it counts as sleeping."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The activity of the threads of a process and of its descendants at some moment from `since_ns` to `until_ns`."""

    threads: dict[int, Thread]
    """The threads by their id."""
    since_ns: int
    until_ns: int


class NotKnownYet(Exception):
    """The activity of the threads of a process on another machine has been requested: look again."""


class Processes(Protocol):
    """Looks up the threads of processes."""

    def look(self, pid: int) -> Seen | None:
        """The threads of the process and its descendants; None if the process has ended. Raises NotKnownYet."""

    def now_ns(self) -> int:
        """The real time in ns."""


def _work_ns(before: Mapping[int, Thread], threads: Mapping[int, Thread]) -> int:
    """The processor time that threads have used, including new ones, but without threads that only serve or watch."""
    return sum(
        max(0, thread.used_ns - (before[number].used_ns if number in before else 0))
        for number, thread in threads.items()
        if thread.main or not thread.name.startswith((*SERVES, *WATCHES))
    )


class _Look:
    """The observations of a rank since it was first looked at, or since its last records."""

    __slots__ = ("asleep", "awake_since_ns", "last", "looks", "restless", "seen", "still_from_ns")

    def __init__(self, seen: Seen) -> None:
        self.seen = self.last = seen
        """The looks: the last one that was compared with the one before, and the last of all."""
        self.looks = 0
        self.asleep = False
        self.restless = False
        """True if it counts as asleep although one of its threads polls."""
        self.still_from_ns = seen.until_ns
        """The instant since when, up to the last look, no thread that may wake another rank has run, or waited for a
        processor.
        """
        self.awake_since_ns = seen.until_ns

    def again(self, seen: Seen) -> None:
        before = self.last.threads
        if any(
            not thread.sleeping or number not in before or before[number].used_ns != thread.used_ns
            for number, thread in seen.threads.items()
            if not thread.name.startswith(WATCHES)
        ):
            self.still_from_ns = seen.until_ns
        self.last = seen


class SleepDetector:
    """Remembers the last look at each rank. ``look`` again until the answer is True or records arrive."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._last: dict[int, _Look] = {}
        self._worked_ns: dict[int, int] = {}
        self.tries = 0
        """The number of times that no moment was found at which all slept, though each one did."""
        self._woken_ns = 0
        """The real time at which processes were last told something, or a rank spoke: ranks may have woken up since."""

    def forget(self, rank: int) -> None:
        """Drops the observations of a rank of which records have arrived."""
        self._last.pop(rank, None)
        self.tries = 0

    def may_wake(self) -> None:
        """Records that processes have been told something, or a rank has spoken: looks from before do not show who
        sleeps now.
        """
        self._woken_ns = self._processes.now_ns()

    def look(self, rank: int, pid: int, least_ns: int) -> bool:
        """Returns true if the rank was asleep between the last two looks at it, at least `least_ns` apart. See
        ``asleep_at_once``. The first look returns false.
        """
        last = self._last.get(rank)
        if last is not None and self._processes.now_ns() - last.seen.until_ns < least_ns:
            return last.asleep
        try:
            seen = self._processes.look(pid)
        except NotKnownYet:
            return last is not None and last.asleep
        if seen is None:
            self.forget(rank)
            return False
        if last is None:
            self._last[rank] = _Look(seen)
            return False
        self._again(rank, seen)
        last.asleep = self._compare(last, seen)
        return last.asleep

    def asleep_at_once(self, pids: Mapping[int, int]) -> bool:
        """Returns true if there was a moment at which no thread of these ranks ran, threads that serve others included.
        Then no rank can be woken by what another one does. Ranks that slept one after the other may have woken each
        other.

        `pids`: processes of ranks that ``look`` has found asleep, now or earlier. Looks at all of them once more:
        between two looks at a thread that has used no processor time it has slept. Nothing is known of a rank with a
        thread that polls; and the answer is True after some tries, because library threads may wake up
        all the time.
        """
        for rank, pid in pids.items():
            try:
                seen = self._processes.look(pid)
            except NotKnownYet:
                continue
            if seen is None:
                self.forget(rank)
            elif rank in self._last:
                self._again(rank, seen)
        if not all(self.slept(rank) for rank in pids):
            return False
        if any(self._last[rank].last.since_ns < self._woken_ns for rank in pids):
            return False  # the process is on another machine, which has not answered yet
        looks = [look for rank in pids if not (look := self._last[rank]).restless]
        if looks and max(look.still_from_ns for look in looks) > min(look.last.since_ns for look in looks):
            self.tries += 1
            return self.tries >= POLLING_LOOKS
        self.tries = 0
        return True

    def slept(self, rank: int) -> bool:
        """Returns true if the last look at the rank found it asleep."""
        last = self._last.get(rank)
        return last is not None and last.asleep

    def stopped(self, rank: int) -> bool:
        """Returns true if a signal had stopped its process, or one below it, at the last look."""
        last = self._last.get(rank)
        return last is not None and any(thread.stopped for thread in last.last.threads.values() if thread.main)

    def worked_ns(self) -> dict[int, int]:
        """The processor time that each rank was seen to use, without threads that only serve or watch."""
        return dict(self._worked_ns)

    def could_run(self) -> bool:
        """Returns true if, at the last look at each rank, one had a thread that ran or waited for a processor, and not
        only serves.
        """
        return any(
            not thread.sleeping and (thread.main or not thread.name.startswith((*SERVES, *WATCHES)))
            for look in self._last.values()
            for thread in look.last.threads.values()
        )

    def threads(self) -> set[int]:
        """All threads that were seen when ranks were last looked at."""
        return {number for look in self._last.values() for number in look.last.threads}

    def _again(self, rank: int, seen: Seen) -> None:
        look = self._last[rank]
        self._worked_ns[rank] = self._worked_ns.get(rank, 0) + _work_ns(look.last.threads, seen.threads)
        look.again(seen)

    def computes(self, pid: int) -> bool:
        """Returns true if the process's first thread runs now, or waits for a processor."""
        try:
            seen = self._processes.look(pid)
        except NotKnownYet:
            return False
        first = None if seen is None else seen.threads.get(pid)
        return first is not None and not first.sleeping

    def _compare(self, last: _Look, seen: Seen) -> bool:
        """Returns true if the rank is asleep, by this look and those before. Remembers this look."""
        now_ns, threads = seen.until_ns, seen.threads
        for_ns = now_ns - last.seen.until_ns
        rested = now_ns - last.awake_since_ns > RESTLESS_NS
        counted = {
            number: thread for number, thread in threads.items() if thread.main or not thread.name.startswith(SERVES)
        }
        before = last.seen.threads
        last.seen = seen
        spent = {n: thread.used_ns - before[n].used_ns if n in before else for_ns for n, thread in counted.items()}
        used_ns, main_ns = sum(spent.values()), sum(ns for n, ns in spent.items() if counted[n].main)
        awake = {n for n, thread in threads.items() if not thread.sleeping and not thread.name.startswith(WATCHES)}
        resting = not awake and all(n not in before or before[n].sleeping for n in counted)
        if (
            resting
            and used_ns <= for_ns * HELPERS_SHARE
            and not any(
                thread.main and n in before and thread.used_ns != before[n].used_ns for n, thread in counted.items()
            )
        ):
            last.restless = False
            return True
        most = RESTLESS_SHARE if rested else POLLING_SHARE
        if used_ns <= for_ns * most and main_ns <= for_ns * POLLING_SHARE:
            if not awake:
                last.restless = True
                last.looks += 1
                return last.looks >= POLLING_LOOKS
            # A thread that polls and has just woken up waits for a processor, on a busy machine; one that works and
            # gets none does so for longer.
            if all(n in before and before[n].sleeping for n in awake):
                return False
        last.looks = 0
        if any(thread.main and n in before and thread.used_ns != before[n].used_ns for n, thread in counted.items()):
            last.awake_since_ns = now_ns
        return False
