"""Kernels: what their programs do, and to which grouped product and routing they belong."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_char_p, c_int, c_int64, c_uint32, c_uint64, c_void_p

from .library import CALLED, RANGES, Library, flat

_COMPUTE = ctypes.CFUNCTYPE(c_int, c_uint32, ctypes.POINTER(c_int64), c_int)


class KernelCalls(Library):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._kernel_program = self._function(
            "kernel_program", None, c_void_p, c_char_p, c_char_p, c_char_p, c_uint32, c_char_p
        )
        self._compute_programs = self._function("compute_programs", None, _COMPUTE, CALLED)
        self._groups = self._function("groups", None, RANGES)
        self._sequences = self._function("sequences", None, RANGES)
        self._lengths = self._function("lengths", None, RANGES)
        self._routing = self._function("routing", None, c_uint64, c_uint32, c_uint32, RANGES, c_uint32, c_char_p)
        self._data_size = self._function("data_size", None, c_uint64, c_uint64, c_uint64, c_char_p)
        self.batch: Callable[[int], None] = self._function("batch", None, c_uint32)
        """Sends a BATCH record: from now on the program generates so many responses at once."""
        self.response: Callable[[int, int, int], None] = self._function("response", None, c_uint32, c_uint32, c_uint64)
        """Sends a RESPONSE record: an event of RESPONSE_EVENT, the response's number, tokens."""
        self.kv_blocks: Callable[[int, int], None] = self._function("kv_blocks", None, c_uint64, c_uint64)
        """Sends a KV_BLOCKS record: the blocks in use, and how many there are."""
        self._generation = self._function("generation", None, *[c_uint64] * 6, c_char_p)
        self.close_segments: Callable[[], None] = self._function("close_segments", None)

    def kernel_program(
        self, function: int, program: str, parameter_widths: str, written: str, computed: int, nbytes: str
    ) -> None:
        """Describes the program of the kernel behind the handle `function`, see emu/hook/kernels/program.c."""
        self._kernel_program(
            function, program.encode(), parameter_widths.encode(), written.encode(), computed, nbytes.encode()
        )

    def compute_programs(self, compute: Callable[[int, list[int]], bool], store: Callable[[], None]) -> None:
        """Lets launches of programs with a number be computed: such a launch calls `compute(number, values)`, then, if
        that is false, all that the kernel may store to becomes unknown, then it calls `store()`. `values`: the grid,
        then the parameters. Neither may raise.
        """
        self._compute_programs(
            self._callback(_COMPUTE, lambda number, values, n: compute(number, values[:n])),
            self._callback(CALLED, store),
        )

    def groups(self, sizes: Sequence[int] | None) -> None:
        """Names the groups of the product that this thread launches (emu/hook/threads/thread.h); None: it launches no
        product.
        """
        self._groups(None if sizes is None else flat(sizes))

    def sequences(self, sizes: Sequence[int] | None) -> None:
        """Names the sequences of the attention that this thread launches (emu/hook/threads/thread.h); None: it launches
        none.
        """
        self._sequences(None if sizes is None else flat(sizes))

    def lengths(self, fields: Sequence[int] | None) -> None:
        """Says where the attention that this thread launches reads how long its sequences are
        (emu/hook/threads/thread.h); None: it launches none.
        """
        self._lengths(None if fields is None else flat(fields))

    def routing(self, calls: int, layer: int, chosen: int, loads: Sequence[int], text: str) -> None:
        """Sends a ROUTING record."""
        self._routing(calls, layer, chosen, flat(loads), len(loads), text.encode(errors="replace"))

    def data_size(self, calls: int, most: int, chosen: int, text: str) -> None:
        """Sends a DATA_SIZE record."""
        self._data_size(calls, most, chosen, text.encode(errors="replace"))

    def generation(
        self, batches: int, responses: int, ended: int, tokens: int, longest: int, places: int, program: str
    ) -> None:
        """Sends a GENERATION record."""
        self._generation(batches, responses, ended, tokens, longest, places, program.encode())
