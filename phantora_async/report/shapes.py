"""Describes shapes of JSON values: the values that are valid, and the first part of a value that is not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from formats.json_lines import JsonPath
from phantora_async.wording import printable

MOST = 2**63 - 1
MOST_CHARACTERS = 1_000_000
"""The most characters of a text."""
MOST_LEVELS = 50
"""The most levels of nested objects and lists, where any are allowed. The report's own values have five."""
MOST_SHOWN = 60
"""The most characters of a wrong value that a message repeats."""


@dataclass(frozen=True, slots=True)
class Whole:
    least: int = 0

    def __str__(self) -> str:
        return f"a whole number of at least {self.least}" if self.least else "a whole number that is not negative"


@dataclass(frozen=True, slots=True)
class Number:
    def __str__(self) -> str:
        return "a number that is not negative"


@dataclass(frozen=True, slots=True)
class Text:
    def __str__(self) -> str:
        return f"text of at most {MOST_CHARACTERS:,} characters"


@dataclass(frozen=True, slots=True)
class Maybe:
    """Null, or this shape."""

    shape: Shape

    def __str__(self) -> str:
        return f"null or {self.shape}"


@dataclass(frozen=True, slots=True)
class Each:
    """A list whose elements all have this shape."""

    shape: Shape
    least: int = 0
    """The least number of elements."""

    def __str__(self) -> str:
        return f"a list of at least {self.least}" if self.least else "a list"


@dataclass(frozen=True, slots=True)
class Fields:
    """An object that has these fields, and any others."""

    fields: Mapping[str, Shape]
    optional: Mapping[str, Shape] = field(default_factory=dict)

    def __str__(self) -> str:
        return "an object"


@dataclass(frozen=True, slots=True)
class AnyObject:
    """An object with any fields, all of which are kept."""

    def __str__(self) -> str:
        return f"an object with at most {MOST_LEVELS} levels"


@dataclass(frozen=True, slots=True)
class Flag:
    def __str__(self) -> str:
        return "true or false"


@dataclass(frozen=True, slots=True)
class Named:
    """An object whose values all have this shape."""

    shape: Shape

    def __str__(self) -> str:
        return "an object"


Shape = Flag | Named | Whole | Number | Text | Maybe | Each | Fields | AnyObject
WHOLE, NUMBER, TEXT, FLAG = Whole(), Number(), Text(), Flag()


@dataclass(frozen=True, slots=True)
class Fault:
    place: JsonPath
    problem: str


def fault_in(value: Any, shape: Shape, place: tuple[str | int, ...]) -> Fault | None:
    """The first part of the value that does not have its shape; None if all have."""
    match shape:
        case Maybe():
            return None if value is None else fault_in(value, shape.shape, place)
        case Fields() if isinstance(value, dict):
            for name, inner in [*shape.fields.items(), *shape.optional.items()]:
                if name not in value:
                    if name in shape.fields:
                        return Fault((*place, name), "missing")
                elif (fault := fault_in(value[name], inner, (*place, name))) is not None:
                    return fault
            return None
        case Named() if isinstance(value, dict):
            faults = (fault_in(one, shape.shape, (*place, name)) for name, one in value.items())
            return next((fault for fault in faults if fault is not None), None)
        case Flag() if isinstance(value, bool):
            return None
        case Each() if isinstance(value, list) and len(value) >= shape.least:
            faults = (fault_in(one, shape.shape, (*place, number)) for number, one in enumerate(value))
            return next((fault for fault in faults if fault is not None), None)
        case Whole() if type(value) is int and shape.least <= value <= MOST:
            return None
        case Number() if type(value) in (int, float) and 0 <= value <= MOST:
            return None
        case Text() if isinstance(value, str) and len(value) <= MOST_CHARACTERS:
            return None
        case AnyObject() if isinstance(value, dict) and _levels(value) <= MOST_LEVELS:
            return None
    shown = printable(_text(value))
    shown = shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}..."
    return Fault(place, f"expected {shape}, found {shown}")


def json_schema(shape: Shape) -> dict[str, Any]:
    """The JSON Schema 2020-12 of this shape. Objects may have fields that it does not name."""
    match shape:
        case Maybe():
            return {"anyOf": [{"type": "null"}, json_schema(shape.shape)]}
        case Fields():
            inner = {**shape.fields, **shape.optional}
            properties = {name: json_schema(inner[name]) for name in sorted(inner)}
            return {"type": "object", "properties": properties, "required": sorted(shape.fields)}
        case Named():
            return {"type": "object", "additionalProperties": json_schema(shape.shape)}
        case Each():
            least = {"minItems": shape.least} if shape.least else {}
            return {"type": "array", "items": json_schema(shape.shape)} | least
        case Whole():
            return {"type": "integer", "minimum": shape.least, "maximum": MOST}
        case Number():
            return {"type": "number", "minimum": 0, "maximum": MOST}
        case Text():
            return {"type": "string", "maxLength": MOST_CHARACTERS}
        case Flag():
            return {"type": "boolean"}
        case AnyObject():
            return {"type": "object"}


def _levels(value: Any) -> int:
    """The levels of nested objects and lists, counted no further than to the first that are too many."""
    levels, level = 0, [value]
    while level and levels <= MOST_LEVELS:
        inner = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list))]
        levels += bool(inner)
        level = [one for values in inner for one in values]
    return levels


def _text(value: Any) -> str:
    """The text of the value, or at least its beginning."""
    if isinstance(value, str):
        value = value[: MOST_SHOWN + 1]
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "brackets within each other"


def only(value: Any, shape: Shape) -> Any:
    """The value without the fields that its shape does not have."""
    match shape:
        case Maybe() if value is not None:
            return only(value, shape.shape)
        case Fields():
            inner = {**shape.fields, **shape.optional}
            return {name: only(value[name], inner[name]) for name in inner if name in value}
        case Each():
            return [only(one, shape.shape) for one in value]
    return value
