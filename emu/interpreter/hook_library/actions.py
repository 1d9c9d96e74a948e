"""Python functions that run when bytes of the device have arrived, or when a graph is launched."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_int, c_uint64

from .library import CALLED_WITH_NUMBER, RANGES, Library, flat


class ActionCalls(Library):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        work = (RANGES, c_int, RANGES, c_int, CALLED_WITH_NUMBER, c_uint64)
        self._data_action = self._function("data_action", None, *work)
        self._capture_action = self._function("capture_action", c_int, c_uint64, *work)

    def action(self, run: Callable[[int], None]) -> Callable[[Sequence[int], Sequence[int], int], None]:
        """Returns `submit(reads, writes, arg)`, which calls `run(arg)`: at once, or later and from any thread if bytes
        of one of the ranges have yet to arrive from other ranks.

        `reads` and `writes` are flat: address, bytes, address, bytes ... `run` must not raise.
        """
        callback, data_action = self._callback(CALLED_WITH_NUMBER, run), self._data_action

        def submit(reads: Sequence[int], writes: Sequence[int], arg: int) -> None:
            data_action(flat(reads), len(reads) // 2, flat(writes), len(writes) // 2, callback, arg)

        return submit

    def capture_action(self, run: Callable[[int], None]) -> Callable[[int, Sequence[int], Sequence[int], int], bool]:
        """Returns `submit(stream, reads, writes, arg)`, which has `run(arg)` called at each launch of the graph that is
        being captured on the stream; False if none is. Otherwise as `action`.
        """
        callback, capture_action = self._callback(CALLED_WITH_NUMBER, run), self._capture_action

        def submit(stream: int, reads: Sequence[int], writes: Sequence[int], arg: int) -> bool:
            both = flat(reads), len(reads) // 2, flat(writes), len(writes) // 2
            return bool(capture_action(stream, *both, callback, arg))

        return submit

    def captured_streams(self) -> ctypes.c_int:
        """Returns how many streams are being captured now, in an object whose `value` changes."""
        return ctypes.c_int.in_dll(self._library, "ph_captured_streams")
