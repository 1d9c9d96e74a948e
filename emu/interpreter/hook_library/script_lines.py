"""Lines and modules of the script: where calls are made, for which modules, and loops that a value must end."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from ctypes import c_char_p, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any

from .library import INTS, RANGES, Library


class ScriptLineCalls(Library):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._sites = self._function("sites", c_int, INTS, c_char_p, c_char_p, c_char_p)
        self._modules_of = self._function("modules_of", None, c_void_p)
        self._modules = self._function("modules", c_int, RANGES, c_int)
        self.module_number: Callable[[int], int] = self._function("module_number", c_int, c_uint64)
        """Returns the number of the module at an address, which gets one if it has none; 0: it gets none."""
        self._module = self._function("module", None, c_uint32, c_char_p)
        self.module_counts: Callable[[], None] = self._function("module_counts", None)
        """Sends a MODULE_COUNTS record."""
        self._line = self._function("line", None, c_char_p, c_int)
        self._loop = self._function("loop", None, c_uint64, c_uint32, c_int, c_char_p)
        self._decided = self._function("decided", None, c_uint64, c_char_p)
        self._watch_loop = self._function_with_lock("watch_loop", c_int, c_void_p, INTS)
        self._loop_turns = self._function_with_lock("loop_turns", c_int64)
        self._forget_loop = self._function_with_lock("forget_loop", None)

    def tell_sites(self, offsets: Sequence[int], ours: str, stdlib: str, torch: str) -> bool:
        """Makes the library's records name the lines where calls were made. Called in the forker.

        `offsets` are those of `FrameLayout`; the others are folders, of this package, of the standard library and of
        torch. Returns False if this interpreter does not export the functions that the library takes.
        """
        folders = (os.fsencode(folder) for folder in (ours, stdlib, torch))
        return bool(self._sites((c_int32 * len(offsets))(*offsets), *folders) == 0)

    def tell_modules(self, call: int) -> None:
        """Makes the library count launches by module. `call`: the address of the code with which modules are called.
        Called in the forker, after `tell_sites`.
        """
        self._modules_of(call)

    def modules(self, known: int) -> list[int]:
        """Returns the addresses of the modules that have been called, without the first `known`."""
        n = int(self._modules(None, 0))
        if n <= known:
            return []
        addresses = (c_uint64 * n)()
        self._modules(addresses, n)
        return list(addresses)[known:]

    def module(self, number: int, text: str) -> None:
        """Sends a MODULE record."""
        self._module(number, text.encode(errors="replace"))

    def line(self) -> str:
        """Returns `file:line` of the script's line that the calling thread runs; "" if that is unknown."""
        text = ctypes.create_string_buffer(1024)
        self._line(text, len(text))
        return text.value.decode(errors="replace")

    def loop(self, turns: int, line: int, stated: bool, text: str) -> None:
        """Sends a LOOP record."""
        self._loop(turns, line, stated, text.encode(errors="replace"))

    def decided(self, reads: int, place: str) -> None:
        """Sends a DECIDED record. `place`: "" counts checks for overflow."""
        self._decided(reads, place.encode(errors="replace"))

    def watch_loop(self, frame: Any, lines: Sequence[int]) -> bool:
        """Counts turns of a loop of this frame, which the calling thread runs, until it is left: see
        emu/hook/threads/loop_turns.c. False if this interpreter does not let us.
        """
        return bool(self._watch_loop(id(frame), (c_int32 * 6)(*lines)) == 0)

    def loop_turns(self) -> int:
        """Returns the turns of the loop that is watched; -1 if it has been left."""
        return int(self._loop_turns())

    def forget_loop(self) -> None:
        """Ends the watch."""
        self._forget_loop()
