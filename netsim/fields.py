"""Reading TOML: typed fields out of a table, unknown keys refused, bounds; errors name field and line."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from netsim.errors import SpecError
from netsim.json_files import read_text

MOST_COUNT = 1 << 53
MOST_NUMBER = 1e15
"""Bounds of fields that have none of their own: sums and products of such numbers do not overflow."""


def shown(value: object) -> str:
    """A wrong value as an error message repeats it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


class FieldError(SpecError):
    """A SpecError that names its field, so that ``locate`` can add the line of the file."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class TomlTable:
    """One table of a description. Each getter removes its field; ``end`` refuses the fields that are left."""

    def __init__(self, values: object, name: str) -> None:
        if not isinstance(values, Mapping):
            raise FieldError(name, f"expected a table, not {shown(values)}")
        self.name = name
        self._left: dict[str, Any] = dict(values)

    def field(self, key: str) -> str:
        """Full name of a field, as error messages give it."""
        return f"{self.name}.{key}" if self.name else key

    def has(self, key: str) -> bool:
        """Whether the field is given and not read yet."""
        return key in self._left

    def table(self, key: str) -> TomlTable:
        """A sub-table; required."""
        return TomlTable(self._take(key, None), self.field(key))

    def tables(self, key: str) -> list[TomlTable]:
        """An array of tables; empty if absent."""
        values = self._take(key, [])
        if not isinstance(values, list):
            raise FieldError(self.field(key), f"expected an array of tables, not {shown(values)}")
        return [TomlTable(value, f"{self.field(key)}[{i}]") for i, value in enumerate(values)]

    def text(self, key: str, default: str | None = None, choices: tuple[str, ...] = ()) -> str:
        """A string without control characters, one of ``choices`` if these are given."""
        value = self._take(key, default)
        if not isinstance(value, str):
            raise FieldError(self.field(key), f"expected a string, not {shown(value)}")
        if not value.isprintable():
            raise FieldError(self.field(key), f"expected printable characters, not {shown(value)}")
        if choices and value not in choices:
            raise FieldError(self.field(key), f"{shown(value)} is not one of {', '.join(choices)}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise FieldError(self.field(key), f"expected true or false, not {shown(value)}")
        return value

    def texts(self, key: str, default: list[str] | None = None) -> list[str]:
        """A list of different strings without control characters."""
        values = self._take(key, default)
        names = isinstance(values, list) and all(isinstance(value, str) and value.isprintable() for value in values)
        if not names:
            raise FieldError(self.field(key), f"expected a list of names, not {shown(values)}")
        twice = next((value for value, times in Counter(values).items() if times > 1), None)
        if twice is not None:
            raise FieldError(self.field(key), f"{shown(twice)} is listed twice")
        return list(values)

    def count(self, key: str, default: int | None = None, least: int = 1, most: int = MOST_COUNT) -> int:
        """A whole number from ``least`` to ``most``."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise FieldError(self.field(key), f"expected a whole number, not {shown(value)}")
        if value < least:
            raise FieldError(self.field(key), f"{shown(value)} is less than {least}")
        if value > most:
            raise FieldError(self.field(key), f"{shown(value)} is more than {most}")
        return value

    def number(
        self,
        key: str,
        default: float | None = None,
        above: float = 0.0,
        least: float | None = None,
        most: float = MOST_NUMBER,
    ) -> float:
        """A number greater than ``above``, or of at least ``least`` if that is given, and at most ``most``."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise FieldError(self.field(key), f"expected a number, not {shown(value)}")
        enough = value > above if least is None else value >= least
        if not (enough and value <= most):
            bound = f"greater than {above:g}" if least is None else f"at least {least:g}"
            raise FieldError(self.field(key), f"{shown(value)} must be {bound} and at most {most:g}")
        return float(value)

    def raw(self, key: str) -> Any:
        """A required field of any type."""
        return self._take(key, None)

    def end(self) -> None:
        """Raise for a field that no getter has read."""
        for key in self._left:
            raise FieldError(self.field(key), "unknown field")

    def _take(self, key: str, default: object) -> Any:
        if key in self._left:
            return self._left.pop(key)
        if default is None:
            raise FieldError(self.field(key), "missing")
        return default


def read_toml(path: Path) -> dict[str, Any]:
    """The file's tables; SpecError if it is unreadable or not TOML (the message carries the line)."""
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: not TOML: {error}") from error
    except ValueError:  # of int(): more digits than Python converts
        raise SpecError(f"{path}: not TOML that can be read: a number has thousands of digits") from None
    except RecursionError:
        raise SpecError(f"{path}: not TOML that can be read: too many brackets within each other") from None


def locate(error: FieldError, path: Path) -> SpecError:
    """The same error with file and line in front."""
    line = line_of(path.read_text(encoding="utf-8"), error.field)
    return SpecError(
        f"{path}:{line}: {error.field}: {error.problem}" if line else f"{path}: {error.field}: {error.problem}"
    )


def line_of(text: str, field: str) -> int | None:
    """Line (from 1) on which ``field`` (``table.key`` or ``table[2].key``) is set, else that of the nearest table
    around it.
    """
    table = ""
    arrays: dict[str, int] = {}
    best: tuple[int, int] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        here = None
        if header := re.match(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]", line):
            table = header[2]
            if header[1] == "[[":
                arrays[table] = arrays.get(table, -1) + 1
                table = f"{table}[{arrays[table]}]"
            here = table
        elif key := re.match(r"\s*([A-Za-z0-9_.\-\"]+)\s*=", line):
            name = key[1].replace('"', "")
            here = f"{table}.{name}" if table else name
        if (
            here
            and (field == here or field.startswith((here + ".", here + "[")))
            and (best is None or len(here) > best[0])
        ):
            best = (len(here), number)
    return best[1] if best else None
