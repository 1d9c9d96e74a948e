"""Compiled functions get ordinary numbers: Dynamo knows `float`, and makes guards of a number's class."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..private.changes import Names, changes
from .marked import PLAIN, plain

_PURPOSE = "numbers of compiled functions"


def install(decide_whether: Callable[[Callable[[], Any]], None]) -> None:
    """Changes Dynamo. Called in the forker. `decide_whether` gets a function that says whether the calling thread runs
    compiled code.
    """

    def change(names: Names) -> None:
        names.change("_TorchDynamoContext.__call__", _with_ordinary_numbers)
        callback = names.get("get_eval_frame_callback")
        if callback is not None:
            decide_whether(callback)

    changes.when_imported(_PURPOSE, change)


def _with_ordinary_numbers(compile_function: Any) -> Any:
    @functools.wraps(compile_function)
    def compile_and_wrap(self: Any, fn: Any) -> Any:
        compiled = compile_function(self, fn)
        if not callable(compiled) or isinstance(compiled, type) or not hasattr(compiled, "__code__"):
            return compiled

        @functools.wraps(compiled)
        def call(*args: Any, **kwargs: Any) -> Any:
            if any(_has_some(one) for one in (*args, *kwargs.values())):
                args, kwargs = _ordinary(args), _ordinary(kwargs)
            return compiled(*args, **kwargs)

        return call

    return compile_and_wrap


def _has_some(value: Any) -> bool:
    kind = type(value)
    if kind is list or kind is tuple:
        return any(type(one) in PLAIN for one in value)
    return kind in PLAIN or (kind is dict and any(type(one) in PLAIN for one in value.values()))


def _ordinary(value: Any) -> Any:
    kind = type(value)
    if kind is list or kind is tuple:
        return kind(map(_ordinary, value))
    return {key: _ordinary(one) for key, one in value.items()} if kind is dict else plain(value)
