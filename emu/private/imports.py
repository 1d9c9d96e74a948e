"""Changes a module as soon as it is imported: to import it for that alone would cost every run time and memory."""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

Change = Callable[[ModuleType], None]


def when_imported(name: str, change: Change) -> None:
    """Calls `change(module)` now if the module is imported already, else right after its code has run."""
    module = sys.modules.get(name)
    if module is not None:
        change(module)
    else:
        _finder().wanted.setdefault(name, []).append(change)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds a wanted module as the other finders do, and lets its loader make the changes."""

    def __init__(self) -> None:
        self.wanted: dict[str, list[Change]] = {}

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        changes = self.wanted.get(name)
        if not changes:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None and spec.loader is not None:
                _change_after(spec.loader, changes)
                return spec
        return None


def _change_after(loader: importlib.abc.Loader, changes: list[Change]) -> None:
    execute = loader.exec_module

    def execute_and_change(module: ModuleType) -> None:
        execute(module)
        for change in changes:
            change(module)

    loader.exec_module = execute_and_change  # type: ignore[method-assign]


def _finder() -> _Finder:
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            return finder
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    return finder
