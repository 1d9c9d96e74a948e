"""Reads tables of descriptions: their errors are ProfileErrors, and a file may be based on another one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from formats.toml import Bounds, FileTable, read_toml
from profiles.errors import ProfileError

MOST_NBYTES = 1 << 46
MOST_BASES = 8
"""A file's base may have a base itself, and so on: a longer chain is one that leads back to its start."""


class Fields(FileTable):
    """One table of a description."""

    bounds = Bounds(2**31 - 1, 1e12)
    """The hook library keeps most of them in 32 bits."""


def read_fields(path: Path, find_base: Callable[[str], Path] | None = None) -> Fields:
    """The file's top table. If it names a `base`, the base's keys hold where the file has none; `find_base` tells
    which file is meant.

    Raises ProfileError for a file that cannot be read or is no TOML.
    """
    source, table = read_toml(path, ProfileError)
    sources = [source]
    while find_base is not None and "base" in table:
        here = Fields(table, "", (sources[-1],), ProfileError)
        name = here.text("base")
        if len(sources) > MOST_BASES:
            raise here.error("base", f"{name!r} is based on more than {MOST_BASES} files, or on itself")
        del table["base"]
        beside = sources[-1].path.parent / name
        path = beside if name.endswith(".toml") and beside.is_file() else find_base(name)
        source, base = read_toml(path, ProfileError)
        table = _over(base, table)
        sources.append(source)
    return Fields(table, "", tuple(sources), ProfileError)


def _over(base: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """The fields of `table`, with those that it lacks from `base`. Tables are merged key by key, unless they describe
    things of another kind: another `kind` of server or fabric, a graph instead of servers.
    """
    if "graph" in table or table.get("kind", base.get("kind")) != base.get("kind"):
        return table
    merged = base | table
    for key, inner in table.items():
        if isinstance(inner, dict) and isinstance(base.get(key), dict):
            merged[key] = _over(base[key], inner)
    return merged
