"""The rank's clock, and what the host's work costs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from ctypes import c_char_p, c_int, c_int32, c_uint32, c_uint64

from .library import INTS, RANGES, Library, flat


def _begin() -> None:
    return None


class HostTimeCalls(Library):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._frame_rule = self._function("frame_rule", c_int, c_char_p, c_char_p, c_int)
        self._count_frames = self._function_with_lock("count_frames", c_int, INTS)
        self._frames_on = self._function_with_lock("frames_on", None, c_int)
        self._measures_host = self._function("measures_host", c_int)
        self._host_counts = self._function("host_counts", c_int, RANGES, c_int)
        self.host_grows_old: Callable[[], None] = self._function("host_grows_old", None)
        """Makes what all threads have run so far count as long ago; none of them does anything meanwhile. For
        counting.
        """
        self._host_kind = self._function("host_kind", c_char_p, c_int)
        self.clock_ns: Callable[[], int] = self._function("clock_ns", c_uint64)
        self.clock_read_ns: Callable[[], int] = self._function("clock_read_ns", c_uint64)
        """Returns the same without asking if it is certain."""
        self.host_clock_ns: Callable[[], int] = self._function("host_clock_ns", c_uint64)
        self.host_works_ns: Callable[[int], None] = self._function("host_works_ns", None, c_uint64)
        """Takes host time for what is left out because it was done before."""
        self.host_collects: Callable[[int], None] = self._function("host_collects", None, c_uint64)
        """Takes host time for Python's look at all objects, where there is a rank and host time is modelled."""
        self.advance_ns: Callable[[int], None] = self._function("advance_ns", None, c_uint64)
        self.aside: Callable[[int], None] = self._function("aside", None, c_int)
        """1: the Python functions that the thread enters from now on take no host time, -1: the end of that."""
        self.uncounted: Callable[[int], int] = self._function("uncounted", c_uint64, c_int)
        self.is_uncounted: Callable[[], int] = self._function("is_uncounted", c_int)
        self.python_asks: Callable[[int], None] = self._function("python_asks", None, c_int)
        """1: Python code asks what the thread asks from now on, -1: the end of that. For recordings."""
        self.is_recorded: Callable[[], int] = self._function("is_recorded", c_int)
        self._script_reads = self._function("script_reads", None, c_char_p)
        self.looks_on: Callable[[], int] = self._function("looks_on", c_int)
        """Tells whether the calling thread has only asked for the time and for finished work so far. Its questions move
        no clock.
        """
        self.thread_looks_on: Callable[[int], None] = self._function("thread_looks_on", None, c_int)
        """Says that a new thread of the program looks on. 1: Python calls it a daemon."""
        self.hands_over: Callable[[], int] = self._function("hands_over", c_uint64)
        """Returns a number that says how much work the GPU has been given until now, when a task is handed to another
        thread.
        """
        self.takes_over: Callable[[int], None] = self._function("takes_over", None, c_uint64)
        """Says that the calling thread begins a task that was handed over with that number; 0: the task has ended."""
        self.python_work: Callable[[int, int], None] = self._function("python_work", None, c_uint64, c_uint64)
        """Takes the host time of this number of Python functions of this many code units, run a moment before."""
        self.own_work: Callable[[int, int, int], None] = self._function("own_work", None, c_uint32, c_uint32, c_uint32)
        """Says what the emulation takes for observing a call, a range and a Python function, in nanoseconds. For
        `--host measured`.
        """

    def script_reads(self, attribute: str) -> None:
        """Notes, for recordings, that somebody reads this of the GPU, if it is the script itself."""
        self._script_reads(attribute.encode())

    def frame_rule(self, file: str, function: str, kind: int) -> None:
        """Adds a rule for functions, see emu.interpreter.frame_counter."""
        self._frame_rule(os.fsencode(file), function.encode(), kind)

    def count_frames(self, offsets: Sequence[int]) -> bool:
        """Makes Python functions cost host time from now on. Called in the forker, after the rules. Returns False if
        this interpreter lacks what it takes.
        """
        counting = bool(self._count_frames((c_int32 * len(offsets))(*offsets)) == 0)
        _begin()  # the first frame that the library sees must be one that begins
        return counting

    def frames_on(self, on: bool) -> None:
        """Switches counting off and on again: for measuring what it takes."""
        self._frames_on(on)

    def measures_host(self) -> bool:
        """Tells whether host time is what the threads use on this machine (`--host measured`)."""
        return bool(self._measures_host())

    def host_counts(self) -> dict[str, int]:
        """Returns the units of each kind of host work since the start, all threads together."""
        n = self._host_counts(None, 0)
        counts = flat([0] * n)
        self._host_counts(counts, n)
        return {self._host_kind(kind).decode(): counts[kind] for kind in range(n)}
