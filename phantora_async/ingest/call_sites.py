"""Call sites: lines of the user's program, as ranks announce them and as messages show them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from emu.contract import installed, records
from phantora_async.wording import short

_EMU = f"{installed.EMU}/"
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_STDLIB = re.compile(r"/lib/python3\.\d+/")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of Python, in a function."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        """The line as text: ``train.py:42 in train_step``; the file relative to the working directory or to
        site-packages.
        """
        text = self.place
        return f"{text} in {self.function}" if self.function and self.function != "<module>" else text

    @property
    def place(self) -> str:
        """The file and line: ``train.py:42``."""
        return f"{short(_PACKAGES.sub('', self.file))}:{self.line}"

    def document(self) -> dict[str, Any]:
        return {"file": self.file, "line": self.line, "function": self.function}


@dataclass(frozen=True, slots=True)
class Site:
    """The site of a call: the user's line, and the library's line that made the call if the user's did not."""

    line: Line
    via: Line | None = None
    caller: Line | None = field(default=None, compare=False)
    """The user's line that called the function of `line`; of a function that a backward pass runs, the line that
    started it. Calls of one line count as one site, whoever called its function.
    """

    def __str__(self) -> str:
        return f"{self.line} (via {self.via})" if self.via else str(self.line)

    @property
    def called(self) -> str:
        """The site with the caller: ``train.py:12 in gather, from train.py:88``."""
        return f"{self}, from {self.caller.place}" if self.caller else str(self)

    def document(self) -> dict[str, Any]:
        return {**self.line.document(), "via": self.via.document() if self.via else None}


def from_record(record: records.Site) -> Site | None:
    """The call site that a rank announced; None if it could tell neither line."""
    texts = record.payload.rstrip(b"\0").decode(errors="replace").split("\n")
    file, function, via_file, via_function, caller_file, caller_function = (*texts, *[""] * 6)[:6]
    user = Line(file, record.line, function) if file else None
    via = Line(via_file, record.via_line, via_function) if via_file else None
    if user is None:
        return Site(via) if via else None
    return Site(user, via, Line(caller_file, record.caller_line, caller_function) if caller_file else None)


def in_packages(line: Line) -> bool:
    """Returns true if the line is one of an installed library."""
    return _PACKAGES.match(line.file) is not None


def innermost(lines: Sequence[Line]) -> Site | None:
    """The call site in a stack, innermost line first, chosen as the hook library's ``sites.c`` chooses it."""
    via: Line | None = None
    outermost: Line | None = None
    for line in lines:
        if line.file.startswith(("<", _EMU)):
            continue
        in_packages = _PACKAGES.match(line.file)
        torch = in_packages is not None and line.file[in_packages.end() :].startswith("torch/")
        if in_packages is None and _STDLIB.search(line.file):
            continue
        if in_packages is None:
            return Site(line, via)
        if not torch:
            via, outermost = via or line, line
    return Site(outermost, via if via != outermost else None) if outermost else None


def texts(sites: Iterable[Site | None]) -> str:
    """The sites as text: ``a.py:3`` or ``a.py:3, b.py:4``, each site once; "" if none is known."""
    return ", ".join(dict.fromkeys(site.called for site in sites if site is not None))
