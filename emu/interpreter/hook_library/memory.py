"""Peaks of memory, and what holds memory then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import POINTER, c_int, c_uint32, c_uint64

from .library import RANGES, Library, flat

MOST_GPUS = 64
"""The most GPUs of a server whose memory a rank may have used."""


class MemoryCalls(Library):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._memory_grew = self._function("memory_grew", c_int)
        self._memory_step = self._function("memory_step", c_int)
        self._memory_held = self._function("memory_held", None, c_uint32, RANGES, c_int)
        self._memory_of = self._function("memory_of", None, c_uint32, RANGES, c_int)
        self._memory_tell = self._function("memory_tell", None, c_int)
        self.memory: Callable[[int, int, int], None] = self._function("memory", None, c_uint32, c_uint64, c_uint64)
        self.memory_taken: Callable[[int], int] = self._function("memory_taken", c_uint64, c_uint32)
        """Returns the most bytes that CUDA has given out at one time."""
        self._memory_at_end = self._function("memory_at_end", c_int, c_uint32, c_uint32, POINTER(c_uint64), c_int)

    def memory_grew(self) -> bool:
        """Tells whether memory has reached a new peak since `memory_tell`, or an allocation has failed."""
        return bool(self._memory_grew())

    def memory_step(self) -> bool:
        """Notes that a step ends. Returns `memory_grew`."""
        return bool(self._memory_step())

    def memory_held(self, held_as: int, addresses: Sequence[int]) -> None:
        """Notes that storages of tensors begin at these addresses. `held_as`: a HeldKind, or 0."""
        self._memory_held(held_as, flat(addresses), len(addresses))

    def memory_of(self, module: int, addresses: Sequence[int]) -> None:
        """Notes that storages of a module's parameters, and of what belongs to them, begin at these addresses.
        `module`: its number; 0: they are of several.
        """
        self._memory_of(module, flat(addresses), len(addresses))

    def memory_at_end(self, server: int, local_rank: int) -> list[list[int]]:
        """Returns for each GPU of a server that a rank's processes have used: its number, and the most bytes that these
        had allocated, reserved and taken of it. For the process that hears of the rank's end.
        """
        found = (c_uint64 * (4 * MOST_GPUS))()
        n = self._memory_at_end(server, local_rank, found, len(found))
        return [list(found[at : at + 4]) for at in range(0, n, 4)]

    def memory_tell(self, step_ends: bool) -> None:
        """Sends MEMORY_HELD records."""
        self._memory_tell(step_ends)
