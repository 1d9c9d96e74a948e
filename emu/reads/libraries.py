"""Libraries that write numbers of Python's own class only: they get ordinary ones."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from . import marked
from .marked import PLAIN, UnknownFloat, first_mark, plain, plain_parts


def install(when_imported: Callable[[str, Callable[[ModuleType], None]], None]) -> None:
    """Gives these libraries ordinary numbers. Called in the forker. `when_imported` changes a module as soon as that is
    there.
    """
    when_imported("statistics", _change_statistics)
    when_imported("orjson", _change_orjson)
    when_imported("yaml.representer", _change_yaml)


def _change_orjson(orjson: ModuleType) -> None:
    dumps = orjson.dumps

    @functools.wraps(dumps)
    def dumps_plain(value: Any, default: Any = None, option: Any = None) -> Any:
        def of_others(one: Any) -> Any:
            if type(one) in PLAIN:
                return plain(one)
            if default is None:
                raise TypeError(f"Type is not JSON serializable: {type(one).__name__}")
            return default(one)

        return dumps(value, of_others, option)

    setattr(orjson, "dumps", dumps_plain)  # noqa: B010


def _change_yaml(representer: ModuleType) -> None:
    for kind in (representer.SafeRepresenter, representer.Representer):
        kind.add_representer(UnknownFloat, lambda self, number: self.represent_float(plain(number)))


def _change_statistics(statistics: ModuleType) -> None:
    """Fractions of integers stand between the numbers and their mean or deviation."""
    for name in statistics.__all__:
        function = getattr(statistics, name)
        if not isinstance(function, type) and callable(function):
            setattr(statistics, name, _of_numbers(function))


def _of_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        args = tuple(list(one) if isinstance(one, (Iterator, deque)) else one for one in args)
        mark = first_mark((*args, *named.values()))
        if mark is None:
            return function(*args, **named)
        found = function(*map(plain_parts, args), **{name: plain_parts(one) for name, one in named.items()})
        return marked.follower.result(found, mark)

    return call
