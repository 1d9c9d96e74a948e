"""Ranges of ops, the backward pass, and the script's profiler."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int, c_uint64

from .library import Library


class RangeCalls(Library):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.backward: Callable[[], None] = self._function("backward", None)
        self.ranges_next: Callable[[int], None] = self._function("ranges_next", None, c_int)
        self.ranges_beside: Callable[[], int] = self._function("ranges_beside", c_uint64)
        self.ranges_asking: Callable[[], int] = self._function("ranges_asking", c_int)
        self.ranges_end: Callable[[int], None] = self._function("ranges_end", None, c_uint64)
        self.profiler_begins: Callable[[int], None] = self._function("profiler_begins", None, c_uint64)
        self.profiler_section: Callable[[int], None] = self._function("profiler_section", None, c_uint64)
        self.profiler_ended: Callable[[], None] = self._function("profiler_ended", None)
