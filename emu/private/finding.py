"""Looks a private name up and compares it with its row of the table. It imports the name's module."""

from __future__ import annotations

import contextlib
import enum
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import platform
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from .names import Kind, Name, Purpose, package_of


class State(enum.Enum):
    """The outcome of looking for a name."""

    OK = "ok"
    MISSING = "missing"
    CHANGED = "changed"
    ABSENT = "not in this version"
    """The name is missing, as the table says for this version."""
    NOT_INSTALLED = "not installed"
    """The name's package is not installed."""


@dataclass(frozen=True, slots=True)
class Found:
    """A name, and what is there."""

    name: Name
    state: State
    detail: str = ""
    """For CHANGED: how the name differs."""
    owner: Any = None
    """The object that has the attribute, if it is there."""
    value: Any = None
    """The attribute's value, as getattr returns it."""

    @property
    def attribute(self) -> str:
        return self.name.path.rpartition(".")[2]


def look(name: Name) -> Found:
    """Looks a name up. Never raises, whatever the package does when it is imported."""
    package = package_of(name.module)
    if name.module not in sys.modules and package != "python" and not _installed(package):
        return Found(name, State.NOT_INSTALLED)
    try:
        owner = importlib.import_module(name.module)
        *path, attribute = name.path.split(".")
        for part in path:
            owner = getattr(owner, part)
        value = getattr(owner, attribute)
        if isinstance(owner, type) and not name.inherited and attribute not in vars(owner):
            raise AttributeError(attribute)  # that of a class above is another one
    except Exception:
        expected = name.expected_in(package, version_of(package))
        return Found(name, State.MISSING if expected else State.ABSENT)
    try:
        difference = _difference(name, value)
    except Exception as error:
        difference = f"looking at it raises {type(error).__name__}"
    return Found(name, State.CHANGED if difference else State.OK, difference, owner, value)


def look_up(purpose: Purpose) -> list[Found]:
    """Looks up all names of a purpose."""
    return [look(name) for name in purpose.names]


def version_of(package: str) -> str:
    """Returns the version of an installed package, or of Python; "" if it cannot be told."""
    if package == "python":
        return platform.python_version()
    version = getattr(sys.modules.get(package), "__version__", None)
    if version is None:
        with contextlib.suppress(metadata.PackageNotFoundError):
            version = metadata.version(package)
    return str(version or "").partition("+")[0]


def has_module(name: str) -> bool:
    """Tells whether there is a file for this module. True for a package that is not installed: nobody will miss its
    modules. Imports nothing.
    """
    top, *rest = name.split(".")
    spec = importlib.util.find_spec(top) if top not in sys.modules else sys.modules[top].__spec__
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not folders or name in sys.modules:
        return True
    at = os.path.join(folders[0], *rest)
    return os.path.isdir(at) or any(os.path.exists(at + suffix) for suffix in importlib.machinery.all_suffixes())


def _installed(package: str) -> bool:
    if package in sys.modules:
        return True
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _difference(name: Name, value: Any) -> str:
    """Describes how the value differs from what is expected; "" if it does not."""
    kinds = {Kind.FUNCTION: callable(value) and not isinstance(value, type), Kind.CLASS: isinstance(value, type)}
    if not kinds.get(name.kind, True):
        return f"it is not {name.kind.value}"
    function = inspect.unwrap(getattr(value, "__func__", value))
    if not isinstance(function, types.FunctionType) or package_of(function.__module__ or "") != package_of(name.module):
        return ""  # C code; or another package has replaced it, which knows what it does
    takes = " ".join(inspect.signature(function).parameters)
    if name.takes and not any(_fits(takes, expected) for expected in name.takes):
        return f"it takes ({takes.replace(' ', ', ')})"
    missing = set(name.mentions.split()) - set(_names_in(function.__code__))
    return f"it has no {', '.join(sorted(missing))}" if missing else ""


def _fits(takes: str, expected: str) -> bool:
    beginning, more, _ = expected.partition("...")
    return f"{takes} ".startswith(beginning) if more else takes == expected


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)
