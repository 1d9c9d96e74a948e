"""Peaks of memory, and what holds memory then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_int, c_uint32, c_uint64

from .library import RANGES, Library, flat


class MemoryCalls(Library):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._memory_grew = self._function("memory_grew", c_int)
        self._memory_step = self._function("memory_step", c_int)
        self._memory_held = self._function("memory_held", None, c_uint32, RANGES, c_int)
        self._memory_tell = self._function("memory_tell", None, c_int)
        self.memory: Callable[[int, int, int], None] = self._function("memory", None, c_uint32, c_uint64, c_uint64)
        self.memory_taken: Callable[[int], int] = self._function("memory_taken", c_uint64, c_uint32)
        """The most that CUDA has given out at one time."""

    def memory_grew(self) -> bool:
        """Has memory reached a new peak since `memory_tell`, or has an allocation failed?"""
        return bool(self._memory_grew())

    def memory_step(self) -> bool:
        """A step ends. Returns `memory_grew`."""
        return bool(self._memory_step())

    def memory_held(self, held_as: int, addresses: Sequence[int]) -> None:
        """Storages of tensors begin there. `held_as`: a HeldKind, or 0."""
        self._memory_held(held_as, flat(addresses), len(addresses))

    def memory_tell(self, step_ends: bool) -> None:
        """Sends MEMORY_HELD records."""
        self._memory_tell(step_ends)
