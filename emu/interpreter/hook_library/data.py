"""Bytes of the device: which are known, and who wrote or reads them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any

from .library import DIMS, RANGES, Library, flat


class DataCalls(Library):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._device_base = self._function("device_base", c_uint64)
        self._device_nbytes = self._function("device_nbytes", c_uint64)
        self._host_range = self._function("host_range", c_uint64, c_uint64, POINTER(c_uint64))
        self._data_overwrite = self._function("data_overwrite", None, RANGES, c_int)
        self._overwrite_on = self._function("overwrite_on", None, c_uint64, RANGES, c_int)
        self._data_writer = self._function("data_writer", c_char_p, c_uint64)
        self.data_wait: Callable[[int, int], None] = self._function("data_wait", None, c_uint64, c_uint64)
        self.data_state: Callable[[int, int], int] = self._function("data_state", c_int, c_uint64, c_uint64)
        self.data_peek: Callable[[int, int], int] = self._function("data_peek", c_int, c_uint64, c_uint64)
        """Returns the state of bytes as `data_state` does, but without making bytes of what refers to a source."""
        self.data_strided_peek: Callable[[int, int, int, Any, Any], int] = self._function(
            "data_strided_peek", c_int, c_uint64, c_int64, c_int, DIMS, DIMS
        )
        self.data_begins: Callable[[int], int] = self._function("data_begins", c_int, c_uint64)
        """Tells whether the byte at the address has a value, or will have one. For a quick no."""
        self.data_any: Callable[[int, int], int] = self._function("data_any", c_int, c_uint64, c_uint64)
        self.data_in_use: Callable[[int, int], int] = self._function("data_in_use", c_int, c_uint64, c_uint64)
        self.data_strided_state: Callable[[int, int, int, Any, Any], int] = self._function(
            "data_strided_state", c_int, c_uint64, c_int64, c_int, DIMS, DIMS
        )
        self.data_strided_mark: Callable[[int, int, int, int, Any, Any], None] = self._function(
            "data_strided_mark", None, c_int, c_uint64, c_int64, c_int, DIMS, DIMS
        )
        self.strided_overwrite: Callable[[int, int, int, Any, Any], None] = self._function(
            "data_strided_overwrite", None, c_uint64, c_int64, c_int, DIMS, DIMS
        )
        self.data_mark_known: Callable[[int, int], None] = self._function("data_mark_known", None, c_uint64, c_uint64)
        self.data_unknown: Callable[[int, int], int] = self._function("data_unknown", c_uint64, c_uint64, c_uint64)
        self.data_uncertain: Callable[[int, int], int] = self._function("data_uncertain", c_uint64, c_uint64, c_uint64)
        self.data_read_state: Callable[[int, int], int] = self._function("data_read_state", c_int, c_uint64, c_uint64)
        self.data_pending: Callable[[int, int], int] = self._function("data_pending", c_int, c_uint64, c_uint64)
        self.data_runs: Callable[[int, int, Any, Any], int] = self._function(
            "data_runs", c_uint64, c_int64, c_int, DIMS, DIMS
        )
        self.data_move: Callable[[int, int, int], None] = self._function(
            "data_move", None, c_uint64, c_uint64, c_uint64
        )
        self.allow_copies: Callable[[int], None] = self._function("data_allow", None, c_uint64)
        self.reads_discarded: Callable[[bool, int], None] = self._function("reads_discarded", None, c_int, c_int64)
        """True: what this thread reads from now on decides nothing in the program, and is not counted; False: it is.
        The number: how many elements it reads, where one of them is a value that nobody computed; -1: 0 is read.
        """
        self.data_mark_chosen: Callable[[int, int], None] = self._function("data_mark_chosen", None, c_uint64, c_uint64)
        self.data_chosen: Callable[[int, int], int] = self._function("data_chosen", c_int, c_uint64, c_uint64)
        self.steps_ended: Callable[[], int] = self._function("steps_ended", c_int64)
        """Returns the number of training steps that have ended; -1 on a thread of the backward pass."""
        self.reads_counted: Callable[[], int] = self._function("unmodelled_reads", c_uint64)
        self.count_read: Callable[[], None] = self._function("count_read", None)
        """Counts a read of values that nobody computed, by an operation that copies no bytes."""
        self.report_kept: Callable[[], None] = self._function("kept", None)
        self.philox: Callable[[int, int, int, int, int, int], None] = self._function(
            "philox", None, c_uint64, c_uint64, c_uint64, c_uint64, c_uint64, c_void_p
        )
        self.stated_value: Callable[[int, int, int], None] = self._function(
            "stated_value", None, c_uint32, c_uint64, c_uint64
        )
        """Sends a STATED_VALUE record."""

    def device_range(self) -> tuple[int, int]:
        """Returns address and bytes of the range that all device memory comes from; the host can read and write it."""
        return self._device_base(), self._device_nbytes()

    def host_range(self, address: int) -> tuple[int, int]:
        """Returns address and bytes of the range of pinned host memory that holds the address; no bytes if none
        does.
        """
        start = c_uint64()
        nbytes: int = self._host_range(address, byref(start))
        return start.value, nbytes

    def overwrite(self, ranges: Sequence[int]) -> None:
        """Notes that a launch that is not executed writes to the ranges (address, bytes, address, bytes ...): they are
        unknown.
        """
        self._data_overwrite(flat(ranges), len(ranges) // 2)

    def overwrite_on(self, stream: int, ranges: Sequence[int]) -> None:
        """Notes that a launch on the stream writes to the ranges: they are unknown; if it is captured, at each launch
        of the graph.
        """
        self._overwrite_on(stream, flat(ranges), len(ranges) // 2)

    def data_marks(self) -> ctypes.c_uint64:
        """Returns how often device bytes have become readable, in an object whose `value` changes."""
        return ctypes.c_uint64.in_dll(self._library, "ph_data_marks")

    def writer(self, address: int) -> str:
        """Returns the operation that should have written these bytes of the device; "" if it is not known."""
        name: bytes = self._data_writer(address)
        return name.decode(errors="replace")
