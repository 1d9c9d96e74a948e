"""Strict reading of TOML: every key is asked for by name and type, and what nobody asked for is an error.

Errors name file, line, dotted key and fault: `my.toml:12: memory.bandwidth_gbps: expected a number of at least 1e-09
and at most 1e+12, found "4.8"`.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from .files import Fault, read_text
from .nearest import meant_or_known
from .parsing import parsed
from .values import shown

MOST_NBYTES = 8 << 20
MOST_TEXT = 1000
"""Characters of a text."""
LEAST_NUMBER = 1e-9
MOST_PARTS = 64
"""The most parts of a dotted key. Python's parser needs minutes for a key of some ten thousand parts."""
_LONG_KEY = re.compile(rf"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{MOST_PARTS}}}""")
_HEADING = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"\s*([A-Za-z0-9_.\-\"]+)\s*=")

_Table = TypeVar("_Table", bound="Table")
_FileTable = TypeVar("_FileTable", bound="FileTable")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of numbers for which a getter is given none."""

    most_integer: int
    most_number: float


class Table:
    """One table of a description. Each getter marks its key as known; `end` refuses those that are left, in inner
    tables too. Subclasses say which error is raised.
    """

    bounds: ClassVar[Bounds] = Bounds(1 << 53, 1e15)
    """Sums and products of such numbers do not overflow."""

    def __init__(self, values: object, name: str = "") -> None:
        """`name`: of the table itself, empty for the whole file."""
        self.name = name
        if not isinstance(values, Mapping):
            raise self.wrong(name, f"expected a table, found {shown(values)}")
        self._values = values
        self._asked: set[str] = set()
        self._inner: list[Table] = []

    def wrong(self, field: str, problem: str) -> Exception:
        """The error to raise. `field`: its full name."""
        raise NotImplementedError

    def within(self: _Table, values: object, name: str) -> _Table:
        """An inner table of the same file."""
        return type(self)(values, name)

    def field(self, key: str) -> str:
        """Full name of a key, as messages give it."""
        return f"{self.name}.{key}" if self.name else key

    def error(self, key: str, problem: str) -> Exception:
        """The error for a key of this table."""
        return self.wrong(self.field(key), problem)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def keys(self) -> list[str]:
        return list(self._values)

    # ---- getters -------------------------------------------------------------------------------------------------

    def table(self: _Table, key: str, *, optional: bool = False) -> _Table:
        """The inner table `key`; an absent optional one reads as empty."""
        inner = self.within(self._take(key, {} if optional else None), self.field(key))
        self._inner.append(inner)
        return inner

    def tables(self: _Table, key: str) -> list[_Table]:
        """An array of tables; empty if absent."""
        values = self._take(key, [])
        if not isinstance(values, list):
            raise self.error(key, f"expected an array of tables, found {shown(values)}")
        inner = [self.within(value, f"{self.field(key)}[{number}]") for number, value in enumerate(values)]
        self._inner += inner
        return inner

    def unchecked(self, key: str) -> dict[str, Any]:
        """The inner table `key`, empty if absent: another reader owns its keys."""
        found = self._take(key, {})
        if not isinstance(found, dict):
            raise self.error(key, f"expected a table, found {shown(found)}")
        return found

    def value(self, key: str) -> Any:
        """A required value of any type."""
        return self._take(key, None)

    def values(self) -> dict[str, Any]:
        """All of this table, whatever they are: their reader checks them."""
        return {key: self._take(key, None) for key in self._values}

    def text(self, key: str, default: str | None = None, *, choices: tuple[str, ...] = ()) -> str:
        """A text that is not empty, of printable characters; one of `choices` if these are given."""
        found = self._take(key, default)
        if not isinstance(found, str) or not found:
            raise self.error(key, f"expected a non-empty string, found {shown(found)}")
        if not found.isprintable() or len(found) > MOST_TEXT:
            raise self.error(key, f"expected at most {MOST_TEXT} printable characters, found {shown(found)}")
        if choices and found not in choices:
            raise self.error(key, f"{shown(found)} is not one of {', '.join(choices)}")
        return found

    def texts(self, key: str, default: list[str] | None = None) -> list[str]:
        """A list of different texts of printable characters."""
        found = self._take(key, default)
        names = isinstance(found, list) and all(isinstance(one, str) and one.isprintable() for one in found)
        if not names:
            raise self.error(key, f"expected a list of names, found {shown(found)}")
        twice = next((one for one, times in Counter(found).items() if times > 1), None)
        if twice is not None:
            raise self.error(key, f"{shown(twice)} is listed twice")
        return list(found)

    def flag(self, key: str, default: bool | None = None) -> bool:
        found = self._take(key, default)
        if not isinstance(found, bool):
            raise self.error(key, f"expected true or false, found {shown(found)}")
        return found

    def integer(self, key: str, default: int | None = None, *, least: int = 0, most: int | None = None) -> int:
        found, most = self._take(key, default), self.bounds.most_integer if most is None else most
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
            raise self.error(key, f"expected a whole number from {least} to {most}, found {shown(found)}")
        return found

    def number(
        self, key: str, default: float | None = None, *, least: float = LEAST_NUMBER, most: float | None = None
    ) -> float:
        """A number in [least, most]; without `least` it must be above 0."""
        found, most = self._take(key, default), self.bounds.most_number if most is None else most
        if isinstance(found, bool) or not isinstance(found, int | float) or not least <= found <= most:
            raise self.error(key, f"expected a number of at least {least:g} and at most {most:g}, found {shown(found)}")
        return float(found)

    def end(self) -> None:
        """Raises for a key that no getter has asked for, here or in an inner table."""
        for key in self._values:
            if key not in self._asked:
                raise self.error(key, f"unknown key; {meant_or_known(key, sorted(self._asked))}")
        for inner in self._inner:
            inner.end()

    def _take(self, key: str, default: Any) -> Any:
        self._asked.add(key)
        if key not in self._values and default is None:
            raise self.error(key, "missing")
        return self._values.get(key, default)


# ---- files ---------------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    number: int
    exact: bool
    """It sets the field, or begins the table that the field is; else it begins a table around it."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file that keys come from."""

    path: Path
    text: str

    def line_of(self, field: str) -> Line | None:
        """The line on which the field (``table.key`` or ``table[2].key``) is set, else that of the nearest table around
        it. The text is searched, because tomllib keeps no positions.
        """
        table, best = "", ""
        number_of = {}
        arrays: dict[str, int] = {}
        for number, line in enumerate(self.text.splitlines(), 1):
            if heading := _HEADING.match(line):
                table = here = heading[2].replace('"', "")
                if heading[1] == "[[":
                    arrays[table] = arrays.get(table, -1) + 1
                    table = here = f"{table}[{arrays[table]}]"
            elif key := _KEY.match(line):
                name = key[1].replace('"', "")
                here = f"{table}.{name}" if table else name
            else:
                continue
            if (field == here or field.startswith((f"{here}.", f"{here}["))) and len(here) > len(best):
                best = here
                number_of[here] = number
        return Line(number_of[best], best == field) if best else None

    def locate(self, field: str, problem: str) -> str:
        """A message with file and line in front."""
        return located((self,), field, problem)


class FileTable(Table):
    """One table of a file. `sources`: the file, then what it is based on. `fault` makes the error of its message."""

    def __init__(self, values: object, name: str, sources: tuple[Source, ...], fault: Fault) -> None:
        self._sources, self._fault = sources, fault
        super().__init__(values, name)

    @property
    def path(self) -> Path:
        return self._sources[0].path

    def wrong(self, field: str, problem: str) -> Exception:
        """Names the file that sets the field: a base, if the file itself does not."""
        return self._fault(located(self._sources, field, problem))

    def within(self: _FileTable, values: object, name: str) -> _FileTable:
        return type(self)(values, name, self._sources, self._fault)


def located(sources: tuple[Source, ...], field: str, problem: str) -> str:
    """A message with file and line in front: those of the first file that sets the field. `sources`: not empty."""
    found = [(source, line) for source in sources if (line := source.line_of(field)) is not None]
    source, line = next(((one, at) for one, at in found if at.exact), (sources[0], sources[0].line_of(field)))
    where = f"{source.path}:{line.number}" if line is not None else str(source.path)
    return f"{where}: {field}: {problem}"


def read_toml(path: Path, fault: Fault) -> tuple[Source, dict[str, Any]]:
    """The file and its tables. Raises `fault` of a message if it cannot be read or is not TOML."""
    text = read_text(path, MOST_NBYTES, fault)
    if long := _LONG_KEY.search(text):
        line = text.count("\n", 0, long.start()) + 1
        raise fault(f"{path}:{line}: not TOML that can be read: a key of more than {MOST_PARTS} parts")

    def own(error: ValueError) -> str:
        return f"{path}: not TOML: {error}" if isinstance(error, tomllib.TOMLDecodeError) else ""

    return Source(path, text), parsed(tomllib.loads, text, path, "TOML", fault, own)
