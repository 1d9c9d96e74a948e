"""Imports modules on trial, in a child of the forker, and finds out which of them a rank would import differently.

A module is refused if its import

- reads an environment variable, the host name or the command line, which ranks have of their own;
- starts a thread, which a forked process would lack, initialises CUDA, or asks whether it is available;
- fails;

and so is every module that imports a refused one. What a module does with files, or with clocks, cannot be seen here.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import importlib.util
import json
import os
import platform
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..contract.process_setup import prctl
from ..private.changes import changes
from .script_imports import is_installed

_PR_SET_PDEATHSIG = 1
LIMIT_S = 180.0
"""A trial that takes longer is given up."""


def acceptable(wanted: Sequence[str], own_variables: Iterable[str], refused: Iterable[str]) -> list[str]:
    """Returns the modules that importing `wanted` adds and that can be kept, in the order of their imports.
    `own_variables`: names of the environment variables that ranks have of their own, or beginnings of names that end in
    `*`. `refused`: names of packages that must not be imported.
    """
    reading, writing = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        os.close(reading)
        _child(parent, writing, wanted, own_variables, refused)
    os.close(writing)
    try:
        return _answer(reading)
    finally:
        os.close(reading)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _answer(reading: int) -> list[str]:
    """Returns the names that the child has sent; none if it has died or takes too long."""
    parts: list[bytes] = []
    while select.select([reading], [], [], LIMIT_S)[0]:
        part = os.read(reading, 1 << 16)
        if not part:
            break
        parts.append(part)
    try:
        return [str(name) for name in json.loads(b"".join(parts))]
    except ValueError:
        return []


def _child(
    parent: int, writing: int, wanted: Sequence[str], own_variables: Iterable[str], refused: Iterable[str]
) -> None:
    try:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        trial = _Trial(own_variables)
        for name in wanted:
            trial.run(name)
        found = trial.accepted(refused)
        with open(writing, "w") as file:
            json.dump(found, file)
    finally:
        os._exit(0)


class _Trial:
    def __init__(self, own_variables: Iterable[str]) -> None:
        self._names = frozenset(own_variables)
        self._beginnings = tuple(name[:-1] for name in self._names if name.endswith("*"))
        self._before = set(sys.modules)
        self._needs: dict[str, set[str]] = {}
        """Module -> what it imports."""
        self._refused: set[str] = set()
        self._threads = len(os.listdir("/proc/self/task"))
        self._observe()

    def run(self, wanted: str) -> None:
        module, _, name = wanted.partition(":")
        known = set(sys.modules)
        with contextlib.suppress(BaseException):  # the script will see it, or does without
            found = importlib.import_module(module)
            if name and not hasattr(found, name):
                importlib.import_module(f"{module}.{name}")
        threads = len(os.listdir("/proc/self/task"))
        if threads > self._threads or sys.modules["torch"].cuda.is_initialized():
            self._refused |= set(sys.modules) - known
            self._threads = threads

    def accepted(self, packages: Iterable[str]) -> list[str]:
        new = [name for name in sys.modules if name not in self._before]
        refused = {name for name in new if name.partition(".")[0] in packages} | self._refused | set(packages)
        refused |= {name for name in new if _package(name) not in sys.modules}  # of a package that failed
        importers: dict[str, set[str]] = {}
        for importer, names in self._needs.items():
            for name in names:
                importers.setdefault(name, set()).add(importer)
        for name in new:
            importers.setdefault(name.rpartition(".")[0], set()).add(name)
        unvisited = list(refused)
        while unvisited:
            for importer in importers.get(unvisited.pop(), ()):
                if importer not in refused:
                    refused.add(importer)
                    unvisited.append(importer)
        return [name for name in new if name not in refused and _is_own_file_of(name)]

    def _observe(self) -> None:
        environment_names = changes.usable("names of the environment")
        if environment_names is not None:
            environment_names.change("_Environ.__getitem__", self._observed)
        # It marks the process: its children can use CUDA no more (torch.cuda._is_in_bad_fork).
        counting = changes.usable("modules that count GPUs")
        if counting is not None:
            counting.change("_cuda_getDeviceCount", self._refusing)
        sys.argv = _Arguments(sys.argv)
        sys.argv.read = self._refuse_running
        for module, name in ((socket, "gethostname"), (socket, "getfqdn"), (platform, "node")):
            setattr(module, name, self._refusing(getattr(module, name)))
        self._observe_imports()

    def _observed(self, get: Callable[[Any, Any], str]) -> Callable[[Any, Any], str]:
        def observed(environment: Any, name: Any) -> Any:
            text = name if isinstance(name, str) else os.fsdecode(name)
            if text in self._names or text.startswith(self._beginnings):
                self._refuse_running()
            return get(environment, name)

        return observed

    def _observe_imports(self) -> None:
        plain_import, plain_import_module = builtins.__import__, importlib.import_module

        def import_(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
            importer = (globals or {}).get("__name__", "")
            package = (globals or {}).get("__package__") or importer
            full = importlib.util.resolve_name("." * level + name, package) if level else name
            self._needs.setdefault(importer, set()).update([full, *(f"{full}.{each}" for each in fromlist or ())])
            return plain_import(name, globals, locals, fromlist, level)

        def import_module(name: str, package: str | None = None) -> Any:
            importer = sys._getframe(1).f_globals.get("__name__", "")
            full = importlib.util.resolve_name(name, package) if package and name.startswith(".") else name
            self._needs.setdefault(importer, set()).add(full)
            return plain_import_module(name, package)

        builtins.__import__ = import_
        importlib.import_module = import_module

    def _refusing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._refuse_running()
            return function(*arguments)

        return call

    def _refuse_running(self) -> None:
        """Refuses the modules whose code runs now."""
        frame: Any = sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_name == "<module>":
                self._refused.add(str(frame.f_globals.get("__name__", "")))
            frame = frame.f_back


def _package(name: str) -> str:
    """Returns the package that the module is in, or the module itself."""
    return name.rpartition(".")[0] or name


class _Arguments(list[str]):
    """`sys.argv`: says when it is read."""

    read: Callable[[], None]

    def __getitem__(self, key: Any) -> Any:
        self.read()
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[str]:
        self.read()
        return super().__iter__()

    def __len__(self) -> int:
        self.read()
        return super().__len__()


def _is_own_file_of(name: str) -> bool:
    """An installed file that can be imported by this name."""
    spec = getattr(sys.modules[name], "__spec__", None)
    return spec is not None and spec.name == name and is_installed(spec.origin)
