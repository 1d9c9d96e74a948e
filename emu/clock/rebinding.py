"""Replaces functions in the places where they are already bound."""

from __future__ import annotations

import ctypes
import gc
import sys
import types
from collections.abc import Callable, Collection, Container, Mapping
from typing import Any

from .callers import TimeSource, time_source_of

_OUR_PACKAGE = __name__.partition(".")[0]


class Bindings:
    """The places where built-in functions are bound.

    Looking at every object of the process takes time, and copies its memory where this is shared with the process that
    has forked it. So `note` does it where the imports are done, once for all runs of a kept interpreter. `rebind` looks
    at what has come since.
    """

    def __init__(self) -> None:
        self._attributes: list[tuple[str, Any, str]] = []
        """Names of modules, modules, and their names that have one of the functions."""
        self._defaults: list[types.FunctionType] = []
        self._sizes: dict[str, tuple[Any, int]] = {}
        """The modules that were looked at, by name, each with the number of its names then."""

    def note(self, functions: Collection[Any]) -> None:
        """Notes where these functions are bound: in modules, and as default arguments. What the garbage collector
        leaves alone (`gc.freeze`) is not found, so nothing may be frozen yet.
        """
        for name, module in list(sys.modules.items()):
            self._sizes[name] = module, len(_names_of(module))
            self._attributes += [(name, module, attribute) for attribute in _bound_in(module, functions)]
        self._defaults += _with_defaults(functions)

    def rebind(self, replacements: Mapping[Any, Any]) -> None:
        """Replaces built-in functions (`replacements`: old to new) in all modules that imported them by name, and where
        they are default arguments of functions. Leaves callers that get real time, and this package, as they are.

        It looks at a module that was noted only where it was bound then, unless the module has got further names.
        """
        for name, module, attribute in self._attributes:
            _replace(name, module, attribute, replacements)
        for name, module in list(sys.modules.items()):
            known, size = self._sizes.get(name, (None, 0))
            if known is not module or size != len(_names_of(module)):
                for attribute in _bound_in(module, replacements):
                    _replace(name, module, attribute, replacements)
        for function in (*self._defaults, *_with_defaults(replacements)):
            if time_source_of(function.__module__) is not TimeSource.REAL:
                function.__defaults__ = tuple(
                    replacements[value] if _is_one(value, replacements) else value
                    for value in function.__defaults__ or ()
                )


def _names_of(module: Any) -> dict[str, Any]:
    return getattr(module, "__dict__", {})


def _is_one(value: Any, functions: Container[Any]) -> bool:
    """Tells whether the value is one of these built-in functions. Looks at its type: proxies make up their class, and
    others have no hash.
    """
    return type(value) is types.BuiltinFunctionType and value in functions


def _bound_in(module: Any, functions: Container[Any]) -> list[str]:
    return [attribute for attribute, value in list(_names_of(module).items()) if _is_one(value, functions)]


def _replace(name: str, module: Any, attribute: str, replacements: Mapping[Any, Any]) -> None:
    if name == "time" or name.partition(".")[0] == _OUR_PACKAGE or time_source_of(name) is TimeSource.REAL:
        return
    value = _names_of(module).get(attribute)
    if _is_one(value, replacements):
        setattr(module, attribute, replacements[value])


def _with_defaults(functions: Container[Any]) -> list[types.FunctionType]:
    """Returns the functions that have one of these as a default argument, of those that the garbage collector sees."""
    return [
        one
        for one in gc.get_objects()
        if type(one) is types.FunctionType
        and one.__defaults__
        and any(_is_one(value, functions) for value in one.__defaults__)
    ]


def replace_in_type(owner: type, **makers: Callable[[Any], Callable[..., Any]]) -> None:
    """Replaces class methods of a type written in C, which does not allow to set them: `name=make` puts
    `make(old method)` in the place of `name`.

    The type itself stays: a subclass in its place would change `isinstance`, pickles and its other subclasses.
    """
    (members,) = gc.get_referents(vars(owner))
    for name, make in makers.items():
        members[name] = classmethod(make(members[name]))
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))
