"""Reading TOML: typed fields out of a table, unknown keys refused, errors that name field and line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from netsim.errors import SpecError


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
            raise FieldError(name, f"expected a table, not {values!r}")
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
            raise FieldError(self.field(key), f"expected an array of tables, not {values!r}")
        return [TomlTable(value, f"{self.field(key)}[{i}]") for i, value in enumerate(values)]

    def text(self, key: str, default: str | None = None, choices: tuple[str, ...] = ()) -> str:
        """A string, one of ``choices`` if these are given."""
        value = self._take(key, default)
        if not isinstance(value, str):
            raise FieldError(self.field(key), f"expected a string, not {value!r}")
        if choices and value not in choices:
            raise FieldError(self.field(key), f"{value!r} is not one of {', '.join(choices)}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise FieldError(self.field(key), f"expected true or false, not {value!r}")
        return value

    def count(self, key: str, default: int | None = None, least: int = 1) -> int:
        """A whole number of at least ``least``."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise FieldError(self.field(key), f"expected a whole number, not {value!r}")
        if value < least:
            raise FieldError(self.field(key), f"{value} is less than {least}")
        return value

    def number(self, key: str, default: float | None = None, above: float = 0.0) -> float:
        """A finite number greater than ``above``."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise FieldError(self.field(key), f"expected a number, not {value!r}")
        if not above < value < float("inf"):
            raise FieldError(self.field(key), f"{value} must be greater than {above:g} and finite")
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
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: not TOML: {error}") from error


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
