"""Programs that name the interpreter by its absolute path get the stub, as those do that look for `python` in PATH.

This is for programs that Python starts. A shell script that names an absolute path gets the real interpreter.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from ..private.changes import Names, changes
from . import program


def install(real: str, folder: str) -> None:
    """Lets all processes that are forked from the server start programs this way. Called in the server. `real`: the
    interpreter; `folder`: has the stub under all names that stand for it.
    """
    replaced = _Replaced(real, folder)
    changes.install("interpreters by their path", functools.partial(_change, replaced))
    for name in ("execv", "execve", "posix_spawn", "posix_spawnp"):
        setattr(os, name, _with_stub(getattr(os, name), replaced))


def _change(replaced: _Replaced, names: Names) -> None:
    # multiprocessing takes it from its module at each use, subprocess has a name of its own.
    for module in ("_posixsubprocess.fork_exec", "subprocess._fork_exec"):
        names.change(module, functools.partial(_forking, replaced))


def _forking(replaced: _Replaced, fork_exec: Callable[..., int]) -> Callable[..., int]:
    def fork_and_execute(arguments: Any, executables: Any, *others: Any) -> int:
        return fork_exec(arguments, [os.fsencode(replaced(os.fsdecode(path))) for path in executables], *others)

    return fork_and_execute


def _with_stub(execute: Callable[..., Any], replaced: Callable[[Any], Any]) -> Callable[..., Any]:
    def execute_stub(path: Any, *arguments: Any, **named: Any) -> Any:
        return execute(replaced(path), *arguments, **named)

    return execute_stub


class _Replaced:
    """A path, or the stub's in its place."""

    def __init__(self, real: str, folder: str) -> None:
        self._real = real
        self._bin = os.path.realpath(os.path.dirname(real))
        self._folder = folder

    def __call__(self, path: Any) -> Any:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return path  # a descriptor, or nothing that can be executed
        given = os.fsdecode(path)
        head, name = os.path.split(given)
        if not os.path.isabs(given) or os.path.realpath(head) != self._bin:
            return path
        stub = os.path.join(self._folder, name)
        known = name.startswith("python") or program.installed_beside(self._real, name)
        return stub if known and os.path.lexists(stub) else path
