"""Tells the report for which modules (torch.nn.Module) of the program the GPU works.

The hook library counts launches by module, and knows a module by its address (emu/hook/threads/modules.h). Its name is
looked up here, at the ends of the steps that have brought new ones: a few times in a run. Nothing of it takes virtual
time or device memory.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .hook_library import Hook

_LONG_S = 1000.0
_DEEPEST = 100
"""The most modules that a path goes through."""


def install(hook: Hook) -> None:
    """Has the library recognise calls of modules. Called once, in the forker, when torch is imported, after
    ``call_sites.install``.
    """
    import torch

    code = getattr(torch.nn.Module.__call__, "__code__", None)
    hook.tell_modules(0 if code is None else id(code))


class Modules:
    """Names the modules of one rank."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._named = 0

    def step_ends(self) -> None:
        """Names the modules that were called for the first time since the last look."""
        addresses = self._hook.modules(self._named)
        if not addresses:
            return
        self._hook.uncounted(1)
        # No other thread may run while the objects are in a list: the list would free a module that it has dropped.
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(_LONG_S)
        try:
            for number, text in enumerate(names(addresses), self._named + 1):
                if text:
                    self._hook.module(number, text)
        finally:
            sys.setswitchinterval(interval_s)
            self._hook.uncounted(-1)
        self._named += len(addresses)

    def report(self) -> None:
        """Sends the launches of the last whole step. Called at the rank's end."""
        self.step_ends()
        self._hook.module_counts()


def names(addresses: Sequence[int]) -> list[str]:
    """Returns a path and, on a second line, a class for the module at each address; "" if there is none any more."""
    modules = _all_modules()
    parents: dict[int, tuple[int, str]] = {}
    for address, module in modules.items():
        for name, child in vars(module).get("_modules", {}).items():
            # The first one that has it: shared modules have several paths.
            parents.setdefault(id(child), (address, str(name)))
    return [
        f"{_path(address, modules, parents)}\n{type(modules[address]).__qualname__}" if address in modules else ""
        for address in addresses
    ]


def _all_modules() -> dict[int, Any]:
    """The modules that the garbage collector knows, by address; none of the program's code runs."""
    base = sys.modules["torch"].nn.Module
    is_module: dict[type, bool] = {}
    found = {}
    for one in gc.get_objects():
        kind = type(one)
        if kind not in is_module:
            is_module[kind] = issubclass(kind, base)
        if is_module[kind]:
            found[id(one)] = one
    return found


def _path(address: int, modules: Mapping[int, Any], parents: Mapping[int, tuple[int, str]]) -> str:
    """The class of the outermost module, and the names of attributes that lead from there to the module."""
    path: list[str] = []
    seen = {address}
    while address in parents and len(path) < _DEEPEST:
        address, name = parents[address]
        path.append(name)
        if address in seen:  # a module that has itself
            break
        seen.add(address)
    parts = [type(modules[address]).__qualname__, *reversed(path)]
    return "\t".join(" ".join(part.split()) for part in parts)
