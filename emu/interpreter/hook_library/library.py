"""Loads the hook library and declares its functions.

Torch sees emulated GPUs because this library's symbols come before CUDA's: it must be loaded into the global scope
before torch is imported.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from ...contract.records_definition import VERSION

RANGES = ctypes.POINTER(ctypes.c_uint64)
"""Address, bytes, address, bytes ..., or other unsigned numbers."""
DIMS = ctypes.POINTER(ctypes.c_int64)
"""Sizes or strides of a tensor."""
INTS = ctypes.POINTER(ctypes.c_int32)
CALLED = ctypes.CFUNCTYPE(None)
CALLED_WITH_NUMBER = ctypes.CFUNCTYPE(None, ctypes.c_uint64)


def flat(numbers: Sequence[int]) -> Any:
    """An array for a parameter of type RANGES."""
    return (ctypes.c_uint64 * len(numbers))(*numbers)


class HookError(RuntimeError):
    """The hook library does not load, has another version, rejects its configuration or finds no coordinator."""


class Library:
    """The loaded library. Calls into it release Python's lock unless they say otherwise; its callbacks take it."""

    def __init__(self, path: str) -> None:
        """Loads `path` into the global scope. Raises HookError."""
        try:
            self._library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise HookError(f"the hook library does not load: {error}") from error
        self._with_lock = ctypes.PyDLL(path, handle=self._library._handle)
        self._callbacks: list[Any] = []
        ours, theirs = VERSION, self._function("abi_version", ctypes.c_int)()
        if ours != theirs:
            raise HookError(f"{path} has version {theirs}, but this package needs version {ours}")

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        """Returns the C function phantora_<name>. Raises HookError if the library has none."""
        return _declared(self._library, name, result, arguments)

    def _function_with_lock(self, name: str, result: Any, *arguments: Any) -> Any:
        """Returns the C function phantora_<name>, which uses the interpreter: it is called with Python's lock held."""
        return _declared(self._with_lock, name, result, arguments)

    def _callback(self, kind: Any, run: Callable[..., object]) -> Any:
        """Makes a function that C code can call from now on. It is kept, because ctypes' callbacks must outlive the
        library's use.
        """
        callback = kind(run)
        self._callbacks.append(callback)
        return callback


def _declared(library: ctypes.CDLL, name: str, result: Any, arguments: tuple[Any, ...]) -> Any:
    function = getattr(library, f"phantora_{name}", None)
    if function is None:
        raise HookError(f"{library._name} has no phantora_{name}")
    function.restype, function.argtypes = result, arguments
    return function
