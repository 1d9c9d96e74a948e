"""Converts descriptions to JSON and back: frozen dataclasses of numbers, texts, paths, tuples and tables."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Union

T = TypeVar("T")


class PlainError(ValueError):
    """The JSON is not of the wanted type."""


def to_plain(value: Any) -> Any:
    """The value as JSON can hold it. Fields are listed by name."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: to_plain(getattr(value, one.name)) for one in dataclasses.fields(value) if one.init}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple | list):
        return [to_plain(one) for one in value]
    if isinstance(value, frozenset):
        return sorted(map(to_plain, value))
    if isinstance(value, Mapping):
        return {key: to_plain(one) for key, one in value.items()}
    return value


def from_plain(kind: type[T], plain: Any) -> T:
    """The value of this type from its JSON. Raises PlainError."""
    made: T = _made(kind, plain)
    return made


def _made(kind: Any, plain: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return plain
    if origin in (Union, types.UnionType):
        return _one_of(arguments, plain)
    if origin in (tuple, list, frozenset):
        return _sequence(origin, arguments, plain)
    if origin in (dict, Mapping):
        if not isinstance(plain, dict):
            raise PlainError(f"expected a table, found {str(plain)[:60]}")
        return {_made(arguments[0], key): _made(arguments[1], value) for key, value in plain.items()}
    if origin is typing.Literal:
        return plain
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, plain)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        if plain not in kind.__members__:
            raise PlainError(f"expected one of {', '.join(kind.__members__)}, found {plain!r}")
        return kind[plain]
    if kind is Path and isinstance(plain, str):
        return Path(plain)
    if kind is float and type(plain) in (int, float):
        return float(plain)
    if kind in (int, str, bool, float, type(None)) and type(plain) is kind:
        return plain
    raise PlainError(f"expected {getattr(kind, '__name__', kind)}, found {str(plain)[:60]}")


def _one_of(kinds: tuple[Any, ...], plain: Any) -> Any:
    if plain is None and type(None) in kinds:
        return None
    faults = []
    for kind in kinds:
        try:
            return _made(kind, plain)
        except PlainError as error:
            faults.append(str(error))
    raise PlainError(faults[0])


def _sequence(origin: Any, arguments: tuple[Any, ...], plain: Any) -> Any:
    if not isinstance(plain, list):
        raise PlainError(f"expected a list, found {str(plain)[:60]}")
    if origin in (list, frozenset) or arguments[1:] == (Ellipsis,):
        return origin(_made(arguments[0], one) for one in plain)
    if len(arguments) != len(plain):
        raise PlainError(f"expected {len(arguments)} values, found {len(plain)}")
    return tuple(_made(kind, one) for kind, one in zip(arguments, plain, strict=True))


@cache
def _types_of(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _dataclass(kind: Any, plain: Any) -> Any:
    if not isinstance(plain, dict):
        raise PlainError(f"expected a {kind.__name__}")
    hints = _types_of(kind)
    known = {one.name for one in dataclasses.fields(kind) if one.init}
    if plain.keys() - known:
        raise PlainError(f"{kind.__name__} has no {', '.join(sorted(plain.keys() - known))}")
    try:
        return kind(**{name: _made(hints[name], value) for name, value in plain.items()})
    except TypeError as error:
        raise PlainError(str(error)) from None
