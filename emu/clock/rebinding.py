"""Replaces functions in the places where they are already bound."""

from __future__ import annotations

import ctypes
import gc
import sys
import types
from collections.abc import Callable
from typing import Any

from .callers import TimeSource, time_source_of

_OUR_PACKAGE = __name__.partition(".")[0]


def rebind(replacements: dict[Any, Any]) -> None:
    """Replaces built-in functions (`replacements`: old to new) in all modules that imported them by name, and where
    they are default arguments of functions. Leaves callers that get real time, and this package, as they are.
    """
    for name, module in list(sys.modules.items()):
        if name != "time" and name.partition(".")[0] != _OUR_PACKAGE and time_source_of(name) is not TimeSource.REAL:
            for attribute, value in list(getattr(module, "__dict__", {}).items()):
                if isinstance(value, types.BuiltinFunctionType) and value in replacements:
                    setattr(module, attribute, replacements[value])
    frozen = gc.get_freeze_count() > 0
    if frozen:
        gc.collect()  # else garbage would be frozen below, and its amount would depend on how the process has come here
    gc.unfreeze()  # what is frozen is not found, and imports may be frozen by now
    functions = gc.get_objects()
    if frozen:
        gc.freeze()
    for function in functions:  # by type: isinstance would ask proxies for their class
        if type(function) is types.FunctionType and function.__defaults__:
            before = function.__defaults__
            after = tuple(
                replacements.get(value, value) if isinstance(value, types.BuiltinFunctionType) else value
                for value in before
            )
            if after != before and time_source_of(function.__module__) is not TimeSource.REAL:
                function.__defaults__ = after


def replace_in_type(owner: type, **makers: Callable[[Any], Callable[..., Any]]) -> None:
    """Replaces class methods of a type written in C, which does not allow to set them: `name=make` puts
    `make(old method)` in the place of `name`.

    The type itself stays: a subclass in its place would change `isinstance`, pickles and its other subclasses.
    """
    (members,) = gc.get_referents(vars(owner))
    for name, make in makers.items():
        members[name] = classmethod(make(members[name]))
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))
