"""Reads symbols.def: functions of C and C++ libraries that the hook library defines in their place, or looks up."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ..formats.c_lists import read_list
from .finding import State, version_of
from .names import key

DEFINITION = Path(__file__).parent / "symbols.def"
REPLACED = "REPLACED"


@dataclass(frozen=True, slots=True)
class Symbol:
    """An entry of the list, which says what its fields are."""

    id: str
    way: str
    library: str
    name: str
    since: str
    use: str
    lost: str


def read() -> list[Symbol]:
    """Returns the entries in the list's order."""
    return [Symbol(*entry.arguments) for entry in read_list(DEFINITION, "SYMBOL")]


def state(symbol: Symbol) -> State:
    """Returns the state of a symbol of this interpreter, or of PyTorch, which is imported."""
    package = "python" if symbol.library == "python" else "torch"
    if _is_there(symbol):
        return State.OK
    return State.MISSING if key(version_of(package)) >= key(symbol.since) else State.ABSENT


def _imports(library: str, name: str) -> bool:
    """Tells whether the name is in the library's table of names, which is near its beginning."""
    with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
        return content.find(b"\0" + name.encode() + b"\0") >= 0


def _is_there(symbol: Symbol) -> bool:
    folder = os.path.join(os.path.dirname(str(sys.modules["torch"].__file__)), "lib")
    try:
        if symbol.way == REPLACED:
            return _imports(os.path.join(folder, symbol.library), symbol.name)
        if symbol.library == "python":
            library = ctypes.pythonapi
        elif symbol.library.startswith("libstdc++"):
            library = ctypes.PyDLL(symbol.library)
        else:
            library = ctypes.PyDLL(f"{folder}/{symbol.library}")
        return hasattr(library, symbol.name)
    except OSError:
        return False
