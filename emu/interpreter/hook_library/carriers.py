"""Functions written in C whose results are replaced where numbers pass that nobody computed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int, c_uint32, c_void_p
from typing import Any

from .library import Library

_REPLACEMENT = ctypes.PYFUNCTYPE(ctypes.py_object, c_int, c_void_p, ctypes.py_object)
READING, CARRYING = 1, 2
OF_FLOAT, JUST_READ = 192, 1 << 16
"""The number of `float`, and the flag of a value that was just read, as in emu/hook/threads/carriers.c."""


class CarrierCalls(Library):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._carry = self._function_with_lock("carry", c_int, c_void_p, c_int)
        self._marked_type = self._function_with_lock("marked_type", c_int, c_void_p)
        self._follow_numbers = self._function_with_lock("follow_numbers", c_int, c_void_p, c_uint32, _REPLACEMENT)
        self._tensor_type = self._function_with_lock("tensor_type", None, c_void_p)
        self.unknown_read: Callable[[], None] = self._function_with_lock("unknown_read", None)
        """Notes that the calling thread has read a value that nobody computed."""
        self.carrying: Callable[[], int] = self._function_with_lock("carrying", c_int)
        """Returns how many calls of the calling thread carry numbers and go on: what they read of a number is not its
        last use.
        """
        self._unknown_on_host = self._function_with_lock("unknown_on_host", None, c_int)

    def follow_numbers(self, saved_as: str, replace: Callable[[int, Any, bool, bool, Any], Any]) -> bool:
        """Follows the functions that carry numbers, see emu/hook/threads/carriers.c. Called in the forker.
        `replace(number, result, failed, just_read, first)` returns what the program gets of the function with this
        number, OF_FLOAT of `float`. It must not raise. Returns False if this interpreter does not let us.
        """

        def run(number: int, result: int | None, first: Any) -> Any:
            value = None if result is None else ctypes.cast(result, ctypes.py_object).value
            return replace(number & ~JUST_READ, value, result is None, bool(number & JUST_READ), first)

        callback = self._callback(_REPLACEMENT, run)
        return bool(self._follow_numbers(id(float), ord(saved_as), callback) == 0)

    def tensor_type(self, tensor: type) -> None:
        """Names the class of tensors: `float` may read one."""
        self._tensor_type(id(tensor))

    def carry(self, method: int, kind: int) -> int:
        """Makes the function with this entry in a table of methods one of these. Returns its number; -1: there are too
        many.
        """
        return int(self._carry(method, kind))

    def marked_type(self, kind: type) -> None:
        """Names a class whose objects are numbers, or arrays, that nobody computed; the first is a subclass of
        `float`.
        """
        if self._marked_type(id(kind)):
            raise ValueError("too many classes")

    def unknown_on_host(self, on: bool) -> None:
        """Says whether there are values in the host's memory that nobody computed."""
        self._unknown_on_host(on)
