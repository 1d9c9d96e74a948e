"""Finds the functions written in C that read values, or carry numbers that nobody computed: see
emu/hook/threads/carriers.c.
"""

from __future__ import annotations

import builtins
import ctypes
import math
import sys
import sysconfig
import types
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..interpreter.hook_library import Hook
from ..interpreter.hook_library.carriers import CARRYING, READING
from . import arrays, marked

WhenImported = Callable[[str, Callable[[ModuleType], None]], None]
_BUILTIN, _DESCRIPTOR, _FLAGS = 16, 40, 16
"""Offsets of the entry in the table of methods in a function and in a method of a class, and of its flags."""
_READING = ("__bool__", "__int__", "__long__", "__nonzero__", "is_nonzero", "item", "numpy", "tolist")
"""Names of the methods of tensors that read values."""
_OF_TORCH = ("as_tensor", "from_numpy", "full", "full_like", "scalar_tensor", "tensor")
_OF_NUMPY = ("array", "asanyarray", "asarray", "ascontiguousarray", "asfortranarray", "fromiter")
_TELLING = frozenset(("isnan", "isinf", "isfinite", "floor", "ceil", "trunc"))
"""Names of the functions of `math` that ask whether a number is finite, as it is taken to be, or that ask the number
itself.
"""


class Carriers:
    """The functions that one process follows. Made before anything else is imported: a function's hash depends on its
    entry in the table.
    """

    def __init__(self, hook: Hook, when_imported: WhenImported) -> None:
        """Called in the forker. `when_imported` changes a module as soon as that is there."""
        self.replace: Callable[[str, Any, bool, bool, Any], Any] = lambda name, result, failed, just_read, first: result
        """`replace(name, result, failed, just_read, first)` returns what the program gets of the function with this
        name. It must not raise.
        """
        self._hook = hook
        self._names: dict[int, str] = {}
        self.usable = not sysconfig.get_config_var("Py_GIL_DISABLED") and _word(id(0.5) + 8) == id(float)
        """True if this interpreter lets us follow them."""
        self.usable = self.usable and hook.follow_numbers(marked.SAVED_AS, self._by_number)
        if not self.usable:
            return
        hook.marked_type(marked.UnknownFloat)
        self._carry(
            CARRYING,
            builtins.max,
            builtins.min,
            *(
                function
                for name, function in vars(math).items()
                if isinstance(function, types.BuiltinFunctionType) and name not in _TELLING and name[0] != "_"
            ),
        )
        when_imported("torch", self._of_torch)
        when_imported("scipy.optimize", self._of_scipy)

    def _by_number(self, number: int, result: Any, failed: bool, just_read: bool, first: Any) -> Any:
        return self.replace(self._names.get(number, "float"), result, failed, just_read, first)

    def _of_torch(self, torch: ModuleType) -> None:
        self._hook.tensor_type(torch.Tensor)
        self._carry(READING, *(getattr(torch.Tensor, name) for name in _READING))
        self._carry(CARRYING, *(getattr(torch, name) for name in _OF_TORCH))
        self._carry(CARRYING, torch.Tensor.new_full, torch.Tensor.new_tensor)
        np = sys.modules.get("numpy")  # torch imports it if it is installed
        if np is None:
            return
        arrays.install(np)
        for kind in marked.PLAIN:
            if kind is not marked.UnknownFloat:
                self._hook.marked_type(kind)
        self._carry(CARRYING, *(getattr(np, name) for name in _OF_NUMPY))

    def _of_scipy(self, optimize: ModuleType) -> None:
        """Follows the function that finds which columns fit rows best: the matching of targets in object detection, for
        example.
        """
        self._carry(CARRYING, optimize.linear_sum_assignment)

    def _carry(self, kind: int, *functions: Any) -> None:
        for function in functions:
            method = _method(function)
            number = self._hook.carry(method, kind) if method else -1
            if number >= 0:
                self._names[number] = function.__name__


def _method(function: Any) -> int:
    """Returns the address of the function's entry in a table of methods; 0 if it is not where it is looked for."""
    if isinstance(function, types.BuiltinFunctionType):
        method = _word(id(function) + _BUILTIN)
    elif isinstance(function, types.MethodDescriptorType):
        method = _word(id(function) + _DESCRIPTOR)
    else:
        return 0
    name = ctypes.string_at(_word(method)).decode(errors="replace")
    return method if name == function.__name__ else 0


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value
