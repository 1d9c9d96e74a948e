"""The program that a Python command line asks for: a file, a module or a line of source, and its arguments."""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence, Set
from dataclasses import dataclass

from ..contract.job import RankView


class ProgramKind(enum.Enum):
    FILE = enum.auto()
    MODULE = enum.auto()
    """``-m``"""
    SOURCE = enum.auto()
    """``-c``"""


@dataclass(frozen=True, slots=True)
class InterpreterOptions:
    """The options of the interpreter that a warm interpreter follows."""

    unbuffered: bool = False
    """``-u``"""
    ignores_environment: bool = False
    """``-E``, ``-I``"""
    utf8: bool | None = None
    """``-X utf8``, ``-X utf8=0``; None if neither is given."""


@dataclass(frozen=True, slots=True)
class Program:
    kind: ProgramKind
    name: str
    """A path, a module's name, or source code, as `kind` says."""
    arguments: tuple[str, ...]
    options: InterpreterOptions = InterpreterOptions()


_KNOWN = frozenset("bBdEIOPqRsStuvx")
"""Options of the interpreter that change nothing here, that the forker has set for all, or that are followed."""
_UTF8 = {"utf8": True, "utf8=1": True, "utf8=0": False}
_PYTHON_SHEBANG = 200
"""The number of bytes at a file's beginning in which `python` must be named."""


def of(job: RankView) -> Program:
    """Returns the program that each rank runs."""
    return Program(ProgramKind.MODULE if job.module else ProgramKind.FILE, job.script, job.arguments)


def parse(arguments: Sequence[str]) -> Program | None:
    """Reads the interpreter's arguments, without its own name. Returns None if a warm interpreter cannot do what they
    ask for.
    """
    rest = list(arguments)
    letters: set[str] = set()
    utf8: bool | None = None
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            return Program(ProgramKind.FILE, word, tuple(rest), _options(letters, utf8))
        if word == "-":
            return None
        for place, letter in enumerate(word[1:], 2):
            if letter in "cmWX":  # with a value: the rest of the word, or the next one
                value = word[place:] or (rest.pop(0) if rest else None)
                if value is None:
                    return None
                if letter in "cm":
                    kind = ProgramKind.SOURCE if letter == "c" else ProgramKind.MODULE
                    return Program(kind, value, tuple(rest), _options(letters, utf8))
                if letter == "X":
                    utf8 = _UTF8.get(value, utf8)
                break
            if letter not in _KNOWN:
                return None
            letters.add(letter)
    return None


def _options(letters: Set[str], utf8: bool | None) -> InterpreterOptions:
    return InterpreterOptions("u" in letters, bool(letters & {"E", "I"}), utf8)


def is_python_script(path: str) -> bool:
    """Tells whether the file's first line names a Python interpreter."""
    try:
        with open(path, "rb") as file:
            head = file.read(_PYTHON_SHEBANG)
    except OSError:
        return False
    return head.startswith(b"#!") and b"python" in head.split(b"\n\n", 1)[0]


def installed_beside(python: str, name: str) -> str | None:
    """Returns the Python script of that name in the interpreter's folder, such as `torchrun`; None if there is none."""
    path = os.path.join(os.path.dirname(python), name)
    return path if is_python_script(path) else None
