"""What a Python command line asks for: a file, a module or a line of source, and its arguments."""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from dataclasses import dataclass

from ..contract.job import Job


class ProgramKind(enum.Enum):
    FILE = enum.auto()
    MODULE = enum.auto()
    """``-m``"""
    SOURCE = enum.auto()
    """``-c``"""


@dataclass(frozen=True, slots=True)
class Program:
    kind: ProgramKind
    name: str
    """A path, a module's name, or source code."""
    arguments: tuple[str, ...]


_WITHOUT_EFFECT = frozenset("bBdEIOPqRsStuvx")
"""Options of the interpreter that change nothing here, or that the forker has set for all."""
_WITH_VALUE = ("-W", "-X")
_PYTHON_SHEBANG = 200
"""Bytes in which `python` must be named."""


def of(job: Job) -> Program:
    """What each rank runs."""
    return Program(ProgramKind.MODULE if job.module else ProgramKind.FILE, job.script, job.arguments)


def parse(arguments: Sequence[str]) -> Program | None:
    """The interpreter's arguments, its own name left out. None if a warm interpreter cannot do what they ask for."""
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in ("-c", "-m"):
            kind = ProgramKind.SOURCE if word == "-c" else ProgramKind.MODULE
            return Program(kind, rest[0], tuple(rest[1:])) if rest else None
        if word in _WITH_VALUE:
            rest[:1] = []
        elif word.startswith(_WITH_VALUE):
            continue
        elif len(word) > 2 and word[0] == "-" and word[1] in _WITHOUT_EFFECT and word[2] in "cm":  # -um MODULE
            rest.insert(0, f"-{word[2]}")
        elif word.startswith("-") and len(word) > 1:
            if not _WITHOUT_EFFECT.issuperset(word[1:]):
                return None
        else:
            return Program(ProgramKind.FILE, word, tuple(rest)) if word != "-" else None
    return None


def is_python_script(path: str) -> bool:
    """Does the file's first line name a Python interpreter?"""
    try:
        with open(path, "rb") as file:
            head = file.read(_PYTHON_SHEBANG)
    except OSError:
        return False
    return head.startswith(b"#!") and b"python" in head.split(b"\n\n", 1)[0]


def installed_beside(python: str, name: str) -> str | None:
    """The Python script of that name in the interpreter's folder, such as `torchrun`."""
    path = os.path.join(os.path.dirname(python), name)
    return path if is_python_script(path) else None
