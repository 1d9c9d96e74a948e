"""Reading JSON that people or other programs have written: what is wrong with it, and on which line."""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .files import Fault
from .parsing import parsed

JsonPath = Sequence[str | int]
"""Keys and indices from the top value to an inner one."""
_SPACE = " \t\r\n"
_decode = json.JSONDecoder().raw_decode


def parse(text: str, path: Path, fault: Fault) -> Any:
    """The value. Raises `fault` of a message that names file and line if the text is not JSON."""

    def own(error: ValueError) -> str:
        if not isinstance(error, json.JSONDecodeError):
            return ""
        return f"{path}:{error.lineno}: not JSON: {error.msg}, column {error.colno}"

    collects = gc.isenabled()
    gc.disable()  # while millions of lists are made it would look at all of them again and again
    try:
        return parsed(json.loads, text, path, "JSON", fault, own)
    finally:
        if collects:
            gc.enable()


def line_of(text: str, value: JsonPath) -> int:
    """The line, from 1, on which a value begins; of a missing one, the line of the innermost value around it."""
    return text.count("\n", 0, _offset(text, value)) + 1


def name_of(value: JsonPath) -> str:
    """``simulated.ranks[3].steps``"""
    name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in value)
    return name.removeprefix(".")


def _offset(text: str, value: JsonPath) -> int:
    at = _skip(text, 0)
    for step in value:
        if text[at] not in "{[":
            return at
        inner = _members(text, at, step)
        found = inner.get(step)
        if found is None:
            return at
        at = found
    return at


def _members(text: str, at: int, wanted: str | int) -> dict[str | int, int]:
    """The places at which the values of the object or array begin that begins at `at`, of an array up to the index
    `wanted`. As in json, the last of equal keys counts.
    """
    found: dict[str | int, int] = {}
    is_object = text[at] == "{"
    at = _skip(text, at + 1)
    while text[at] not in "}]" and (is_object or wanted not in found):
        key: str | int = len(found)
        if is_object:
            key, at = _decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        found[key] = at
        _, at = _decode(text, at)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
