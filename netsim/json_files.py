"""Reading JSON that people or other programs have written: what is wrong with it, and on which line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from netsim.errors import SpecError

Place = Sequence[str | int]
"""Keys and indices from the top value to an inner one."""
_SPACE = " \t\r\n"
_decode = json.JSONDecoder().raw_decode


def read_text(path: Path) -> str:
    """The file's text; SpecError if it cannot be read or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise SpecError(
            f"{path}:{line}: expected UTF-8 text, found the byte 0x{error.object[error.start]:02x}"
        ) from None


def parse(text: str, path: Path) -> Any:
    """The value; SpecError that names file and line if the text is not JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise SpecError(f"{path}:{error.lineno}: not JSON: {error.msg}, column {error.colno}") from None
    except ValueError:  # of int(): more digits than Python converts
        raise SpecError(f"{path}: not JSON that can be read: a number has thousands of digits") from None
    except RecursionError:
        raise SpecError(f"{path}: not JSON that can be read: too many brackets within each other") from None


def line_of(text: str, place: Place) -> int:
    """The line, from 1, on which a value begins; of a missing one, the line of the innermost value around it."""
    return text.count("\n", 0, _offset(text, place)) + 1


def name_of(place: Place) -> str:
    """``simulated.ranks[3].steps``"""
    name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return name.removeprefix(".")


def _offset(text: str, place: Place) -> int:
    at = _skip(text, 0)
    for step in place:
        if text[at] not in "{[":
            return at
        inner = _members(text, at)
        found = inner.get(step)
        if found is None:
            return at
        at = found
    return at


def _members(text: str, at: int) -> dict[str | int, int]:
    """Where the values of the object or array begin that begins at `at`. As in json, the last of equal keys counts."""
    found: dict[str | int, int] = {}
    is_object = text[at] == "{"
    at = _skip(text, at + 1)
    while text[at] not in "}]":
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
