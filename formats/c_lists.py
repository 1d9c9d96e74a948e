"""Lists that C compiles, as Python reads them: entries such as `KIND(NAME, name, "a text")` in a .def file.

Each list is the one definition of something that both languages know. C makes what it needs of it with macros.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_COMMENT = re.compile(r"/\*.*?\*/|^\s*#.*?$", re.DOTALL | re.MULTILINE)
_PART = re.compile(r'"((?:[^"\\]|\\.)*)"|[(),]|[^"(),]+')


class ListError(ValueError):
    """An entry that does not end."""


class Entry(NamedTuple):
    macro: str
    arguments: tuple[str, ...]
    """Texts without their quotes; what is in inner parentheses as it stands."""


def read_list(path: Path, *macros: str) -> list[Entry]:
    """The file's entries of these macros, in order. Raises OSError or ListError."""
    return list(entries(path.read_text(encoding="utf-8"), *macros))


def entries(text: str, *macros: str) -> Iterator[Entry]:
    """Raises ListError."""
    text = _COMMENT.sub(" ", text)
    begin = re.compile(rf"\b({'|'.join(macros)})\(")
    at = 0
    while found := begin.search(text, at):
        arguments, at = _arguments(text, found.end())
        yield Entry(found[1], tuple(arguments))


def _arguments(text: str, at: int) -> tuple[list[str], int]:
    """Up to the parenthesis that closes the entry, and what comes after it."""
    arguments, depth = [""], 0
    for part in _PART.finditer(text, at):
        if part[0] == ")" and not depth:
            return [" ".join(argument.split()) for argument in arguments], part.end()
        if part[0] == "," and not depth:
            arguments.append("")
            continue
        depth += {"(": 1, ")": -1}.get(part[0], 0)
        arguments[-1] += part[0] if depth or part[1] is None else part[1]
    raise ListError(f"an entry that does not end: {arguments[0].strip()}")
