"""Puts functions in the place of others, wherever these are bound already."""

from __future__ import annotations

import ctypes
import gc
import sys
import types
from collections.abc import Callable
from typing import Any

from .callers import Policy, policy_of

_OUR_PACKAGE = __name__.partition(".")[0]


def rebind(replacements: dict[Any, Any]) -> None:
    """Modules that said `from time import ...`, functions with a clock as default argument; not real-time ones."""
    for name, module in list(sys.modules.items()):
        if name != "time" and policy_of(name) is Policy.VIRTUAL and not name.startswith(_OUR_PACKAGE):
            for attribute, value in list(getattr(module, "__dict__", {}).items()):
                if isinstance(value, types.BuiltinFunctionType) and value in replacements:
                    setattr(module, attribute, replacements[value])
    for function in gc.get_objects():  # by type: isinstance would ask proxies for their class
        if type(function) is types.FunctionType and function.__defaults__:
            before = function.__defaults__
            after = tuple(
                replacements.get(value, value) if isinstance(value, types.BuiltinFunctionType) else value
                for value in before
            )
            if after != before and policy_of(function.__module__) is Policy.VIRTUAL:
                function.__defaults__ = after


def replace_in_type(owner: type, **makers: Callable[[Any], Callable[..., Any]]) -> None:
    """Class methods of a type that is written in C and does not let them be set. Its subclasses, its pickles and
    `isinstance` stay what they are, which a type in its place would change.
    """
    (members,) = gc.get_referents(vars(owner))
    for name, make in makers.items():
        members[name] = classmethod(make(members[name]))
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))
