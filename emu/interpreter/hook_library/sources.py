"""Bytes of device memory that are made when somebody reads them (emu/hook/sources/)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_int64, c_uint64, c_void_p
from typing import Any

from .library import CALLED_WITH_NUMBER, DIMS, RANGES, Library

STORE_SOCKET = "store"


class SourceCalls(Library):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._store_open = self._function("store_open", None, c_char_p)
        self._store_serve = self._function("store_serve", None, c_int, c_char_p)
        self._source_compute = self._function("source_compute", None, CALLED_WITH_NUMBER)
        self._source_recipes = self._function("source_recipes", None, CALLED_WITH_NUMBER)
        self._recipe_given = self._function("recipe_given", None, c_char_p, c_uint64)
        self._recipe = self._function("recipe", c_uint64, c_void_p, c_uint64)
        self._taken_table = self._function("taken_table", c_uint64, c_uint64, ctypes.POINTER(c_void_p))
        self._table_drop = self._function("table_drop", None, c_void_p)
        self._sources_dropped = self._function("sources_dropped", c_uint64, RANGES, c_uint64)
        self._name_host = self._function("name_host", None, c_uint64, c_uint64, c_uint64, c_uint64)
        self._dropped = (c_uint64 * 256)()
        self.take: Callable[[int, int, int, Any, Any], int] = self._function(
            "take", c_uint64, c_uint64, c_int64, c_int, DIMS, DIMS
        )
        self.take_table: Callable[[bytes, int], int] = self._function("take_table", c_uint64, c_char_p, c_uint64)
        self.taken_drop: Callable[[int], None] = self._function("taken_drop", None, c_uint64)
        self.taken_depth: Callable[[int], int] = self._function("taken_depth", c_int, c_uint64)
        self.taken_work: Callable[[int], int] = self._function("taken_work", c_uint64, c_uint64)
        """Returns how many elements are gone through before what was taken can be read."""
        self.taken_read: Callable[[int, int], int] = self._function("taken_read", c_int, c_uint64, c_uint64)
        self.refer: Callable[[int, int, int, int, Any, Any], int] = self._function(
            "refer", c_int, c_uint64, c_uint64, c_int64, c_int, DIMS, DIMS
        )
        self.refer_source: Callable[[bytes | None, int, int, int, int, int, int, Any, Any], int] = self._function(
            "refer_source", c_int, c_char_p, c_uint64, c_int, c_uint64, c_uint64, c_int64, c_int, DIMS, DIMS
        )
        self.give_source: Callable[[int, int], None] = self._function("source_given", None, c_uint64, c_uint64)
        self.give_source_part: Callable[[int, int, int], None] = self._function(
            "source_part_given", None, c_uint64, c_uint64, c_uint64
        )
        self.taken_nbytes: Callable[[int], int] = self._function("taken_nbytes", c_uint64, c_uint64)
        self.taken_read_part: Callable[[int, int, int, int], int] = self._function(
            "taken_read_part", c_int, c_uint64, c_uint64, c_uint64, c_uint64
        )
        """Writes bytes of what was taken, from a byte on so many, to an address. Returns 0 if some cannot be had: these
        are 0.
        """
        self._host_pages_open = self._function("host_pages_open", None, c_char_p)
        number = ctypes.POINTER(c_uint64)
        self._table_row = self._function(
            "table_row", c_int, c_char_p, c_uint64, number, ctypes.POINTER(c_int), ctypes.POINTER(c_void_p), number
        )
        self._source_range = self._function("source_range", None, number, number, number)

    def open_store(self, folder: str) -> None:
        """Lets all ranks keep what their programs give to the device with the process that serves in this folder.
        Called in the forker.
        """
        self._store_open(os.fsencode(folder))

    def serve_store(self, listener: int, folder: str) -> None:
        """Serves the store that keeps what ranks give it, in a process of its own. `listener`: a socket that listens in
        the folder, as `STORE_SOCKET`. Returns if it cannot serve.
        """
        self._store_serve(listener, os.fsencode(folder))

    def compute_sources(self, run: Callable[[int], None], tell: Callable[[int], None]) -> None:
        """Has the hook call `run(number)` where a source of that number is read: on any thread, within the read. It
        calls `give_source(address, nbytes)` with the source's bytes, or does not if it has none. Number 0 is one that
        another rank has told: see `recipe`. `tell(number)` calls `give_recipe`, or does not. Neither must raise.
        """
        self._source_compute(self._callback(CALLED_WITH_NUMBER, run))
        self._source_recipes(self._callback(CALLED_WITH_NUMBER, tell))

    def source_range(self) -> tuple[int, int, int]:
        """Returns which bytes of the source are read: from which byte on, how many bytes, and how many were made for
        parts before. Such a part may be given by `give_source_part(address, offset, nbytes)`; it is not kept for other
        reads.
        """
        offset, nbytes, apart = c_uint64(), c_uint64(), c_uint64()
        self._source_range(offset, nbytes, apart)
        return offset.value, nbytes.value, apart.value

    def give_recipe(self, text: bytes) -> None:
        """Tells how other ranks can compute the source."""
        self._recipe_given(text, len(text))

    def recipe(self) -> bytes:
        """Returns the recipe that another rank has given for the source that is read."""
        nbytes = self._recipe(None, 0)
        text = ctypes.create_string_buffer(nbytes + 1)
        self._recipe(text, nbytes)
        return text.raw[:nbytes]

    def taken_table(self, handle: int) -> bytes:
        """Returns what was taken, in a form that any rank can read with `take_table`."""
        table = ctypes.c_void_p()
        nbytes = self._taken_table(handle, ctypes.byref(table))
        text = ctypes.string_at(table, nbytes) if nbytes else b""
        self._table_drop(table)
        return text

    def table_rows(self, table: bytes) -> list[tuple[bool, bytes]]:
        """Returns for each row of a `taken_table`: whether it refers to what ranks tell each other, and how it is
        computed; empty if it is not.
        """
        at, remote, recipe, nbytes, rows = c_uint64(), c_int(), c_void_p(), c_uint64(), []
        while self._table_row(table, len(table), at, remote, recipe, nbytes):
            rows.append((bool(remote.value), ctypes.string_at(recipe, nbytes.value) if nbytes.value else b""))
        return rows

    def open_host_pages(self, folder: str) -> None:
        """Lets the process that serves in this folder make what ranks copy to the host, when somebody reads it. Called
        in the forker.
        """
        self._host_pages_open(os.fsencode(folder))

    def dropped_sources(self) -> list[int]:
        """Returns the numbers of sources that nothing refers to any more, each once."""
        n = self._sources_dropped(self._dropped, len(self._dropped))
        return self._dropped[:n]

    def name_host(self, address: int, nbytes: int, name: bytes) -> None:
        """Names a range of the host's memory: ranks that have not written to ranges of equal names have equal bytes
        there. `name`: 16 bytes; zeros take the name away.
        """
        low, high = int.from_bytes(name[:8], "little"), int.from_bytes(name[8:], "little")
        self._name_host(address, nbytes, low, high)
