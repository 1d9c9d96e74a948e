"""Strict reading of TOML: every key is asked for by name and type, and what nobody asked for is an error.

Errors name file, line, dotted key and fault: `my.toml:12: memory.bandwidth_gbps: expected a number above 0, found
"4.8"`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiles.errors import ProfileError

MOST_INTEGER = 2**31 - 1
LEAST_NUMBER = 1e-9
MOST_NUMBER = 1e12
"""Bounds of fields that have none of their own. The hook library keeps most of them in 32 bits."""
MOST_NBYTES = 1 << 46
MOST_TEXT = 1000
MOST_BASES = 8
"""A file's base may have a base itself, and so on: a longer chain is one that leads back to its start."""


def shown(value: object) -> str:
    """A wrong value as an error message repeats it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


@dataclass(frozen=True, slots=True)
class Source:
    """A file that keys come from."""

    path: Path
    text: str

    def line_of(self, prefix: str, key: str) -> int | None:
        """The line that sets the key: tomllib keeps no positions, so the text is searched below its table's heading."""
        wanted = prefix.rstrip(".")
        heading = ""
        for number, line in enumerate(self.text.splitlines(), start=1):
            if found := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
                heading = found[1].replace('"', "")
                if heading == f"{prefix}{key}":
                    return number
            elif heading == wanted and re.match(rf'\s*"?{re.escape(key)}"?\s*[=.]', line):
                return number
        return None


class Fields:
    """One table of a TOML file. Each getter marks its key as known; `done()` rejects the keys left over.

    `sources`: the file, then its base, the base of that and so on.
    """

    def __init__(self, sources: tuple[Source, ...], table: dict[str, Any], prefix: str = "") -> None:
        self.path = sources[0].path
        self._sources = sources
        self._table = table
        self._prefix = prefix
        self._asked: set[str] = set()
        self._inner: list[Fields] = []

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def table(self, key: str, *, optional: bool = False) -> Fields:
        """The inner table `key`; an absent optional one reads as empty."""
        found = self._take(key, {} if optional else None)
        if not isinstance(found, dict):
            raise self.error(key, f"expected a table, found {shown(found)}")
        inner = Fields(self._sources, found, f"{self._prefix}{key}.")
        self._inner.append(inner)
        return inner

    def raw(self, key: str) -> dict[str, Any]:
        """The inner table `key` unchecked: another reader owns its keys."""
        found = self._take(key, {})
        if not isinstance(found, dict):
            raise self.error(key, f"expected a table, found {shown(found)}")
        return found

    def keys(self) -> list[str]:
        return list(self._table)

    def text(self, key: str, default: str | None = None) -> str:
        found = self._take(key, default)
        if not isinstance(found, str) or not found:
            raise self.error(key, f"expected a non-empty string, found {shown(found)}")
        if not found.isprintable() or len(found) > MOST_TEXT:
            raise self.error(key, f"expected at most {MOST_TEXT} printable characters, found {shown(found)}")
        return found

    def integer(self, key: str, default: int | None = None, *, least: int = 0, most: int = MOST_INTEGER) -> int:
        found = self._take(key, default)
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
            raise self.error(key, f"expected an integer from {least} to {most}, found {shown(found)}")
        return found

    def number(
        self,
        key: str,
        default: float | None = None,
        *,
        least: float = 0.0,
        most: float = MOST_NUMBER,
        zero: bool = False,
    ) -> float:
        """A number in [least, most]; with `least` 0 it must be at least LEAST_NUMBER, unless `zero`."""
        found = self._take(key, default)
        good = isinstance(found, int | float) and not isinstance(found, bool) and least <= found <= most
        above_0 = least == 0.0 and not zero
        if not good or (above_0 and found < LEAST_NUMBER):
            bound = LEAST_NUMBER if above_0 else least
            raise self.error(key, f"expected a number of at least {bound:g} and at most {most:g}, found {shown(found)}")
        return float(found)

    def done(self) -> None:
        """Raises ProfileError for a key that no getter asked for, here or in an inner table."""
        for key in self._table:
            if key not in self._asked:
                raise self.error(key, f"unknown key; known ones here: {', '.join(sorted(self._asked))}")
        for inner in self._inner:
            inner.done()

    def error(self, key: str, fault: str) -> ProfileError:
        """Names the file that sets the key: a base, if the file itself does not."""
        found = ((source.path, source.line_of(self._prefix, key)) for source in self._sources)
        where = next((f"{path}:{line}" for path, line in found if line), str(self.path))
        return ProfileError(f"{where}: {self._prefix}{key}: {fault}")

    def _take(self, key: str, default: Any) -> Any:
        self._asked.add(key)
        if key not in self._table and default is None:
            raise self.error(key, "missing")
        return self._table.get(key, default)


def read_toml(path: Path, find_base: Callable[[str], Path] | None = None) -> Fields:
    """The file's top table. If it names a `base`, the base's keys hold where the file has none; `find_base` tells
    which file is meant.

    Raises ProfileError for a file that cannot be read or is no TOML (tomllib names line and column).
    """
    source, table = _parsed(path)
    sources = [source]
    while find_base is not None and "base" in table:
        here = Fields((sources[-1],), table)
        name = here.text("base")
        if len(sources) > MOST_BASES:
            raise here.error("base", f"{name!r} is based on more than {MOST_BASES} files, or on itself")
        del table["base"]
        beside = sources[-1].path.parent / name
        source, base = _parsed(beside if name.endswith(".toml") and beside.is_file() else find_base(name))
        table = _over(base, table)
        sources.append(source)
    return Fields(tuple(sources), table)


def _over(base: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """`table`, with what it lacks from `base`. Tables are merged key by key, unless they describe things of another
    kind: another `kind` of server or fabric, a graph instead of servers.
    """
    if "graph" in table or table.get("kind", base.get("kind")) != base.get("kind"):
        return table
    merged = base | table
    for key, inner in table.items():
        if isinstance(inner, dict) and isinstance(base.get(key), dict):
            merged[key] = _over(base[key], inner)
    return merged


def _parsed(path: Path) -> tuple[Source, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path}: cannot be read: {error}") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{path}: not valid TOML: {error}") from error
    except ValueError:  # of int(): more digits than Python converts
        raise ProfileError(f"{path}: not TOML that can be read: a number has thousands of digits") from None
    except RecursionError:
        raise ProfileError(f"{path}: not TOML that can be read: too many brackets within each other") from None
    return Source(path, text), table
