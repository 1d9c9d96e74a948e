"""Ranges of ops, the backward pass, and the script's profiler."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int, c_uint32, c_uint64

from .library import Library


class RangeCalls(Library):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.backward: Callable[[], None] = self._function("backward", None)
        self.ranges_next: Callable[[int], None] = self._function("ranges_next", None, c_int)
        self.ranges_beside: Callable[[], int] = self._function("ranges_beside", c_uint64)
        self.ranges_asking: Callable[[], int] = self._function("ranges_asking", c_int)
        self.ranges_end: Callable[[int], None] = self._function("ranges_end", None, c_uint64)
        self._tensors_seek = self._function("tensors_seek", None, *[c_uint64] * 5)
        self.tensors_sought: Callable[[], int] = self._function("tensors_sought", c_int)
        self.tensor_threads: Callable[[int], None] = self._function("tensor_threads", None, c_uint32)
        """Says on how many threads operators on tensors of the CPU run on the described host."""
        self.tensors_stand_for: Callable[[int, int], None] = self._function(
            "tensors_stand_for", None, c_uint64, c_uint64
        )
        """Says how many elements, the first number, every so many elements stand for of the tensors that the calling
        thread works on next.
        """
        self.profiler_begins: Callable[[int], None] = self._function("profiler_begins", None, c_uint64)
        self.profiler_section: Callable[[int], None] = self._function("profiler_section", None, c_uint64)
        self.profiler_ended: Callable[[], None] = self._function("profiler_ended", None)

    def tensors_seek(self, first: int, second: int, keys: int, meta: int, meta_keys: int) -> None:
        """Says which tensors the operators take that the calling thread runs until `tensors_sought`: two plain ones
        of the CPU with these dispatch keys. `meta` is one without memory.
        """
        self._tensors_seek(first, second, keys, meta, meta_keys)
