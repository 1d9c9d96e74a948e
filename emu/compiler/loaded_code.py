"""The Python code of a compiled graph is read from its file as bytecode: ranks that load it need not compile it.

The bytecode is kept beside the file also where Python is told to write none (PYTHONDONTWRITEBYTECODE): the folder is
that of the compile cache.
"""

from __future__ import annotations

import functools
import importlib.util
import marshal
import sys
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from ..private.changes import changes

_WORD = 1 << 32


def install() -> None:
    """Makes torch read the code of compiled graphs as bytecode. Called once, in the forker, before torch compiles."""
    changes.when_imported("code of compiled graphs", lambda names: names.change("_reload_python_module", _as_bytecode))


def _as_bytecode(reload: Any) -> Any:
    @functools.wraps(reload)
    def reload_as_bytecode(key: str, path: str, set_sys_modules: bool = True) -> ModuleType:
        name = f"{reload.__module__}.{key}"
        try:
            code = _Loader(name, path).get_code(name)
        except (OSError, SyntaxError, ValueError):
            code = None
        if code is None:
            module: ModuleType = reload(key, path, set_sys_modules)  # it says what is wrong
            return module
        module = ModuleType(name)
        vars(module).update(__file__=path, key=key)
        exec(code, vars(module))
        if set_sys_modules:
            sys.modules[name] = module
        return module

    return reload_as_bytecode


class _Loader(SourceFileLoader):
    """Compiles what has no bytecode of its size and time, and keeps that."""

    def source_to_code(self, data: Any, path: Any, **options: Any) -> CodeType:  # type: ignore[override]
        code: CodeType = super().source_to_code(data, path, **options)
        if sys.dont_write_bytecode:
            self._keep(code)
        return code

    def _keep(self, code: CodeType) -> None:
        """Writes the bytecode in the form of PEP 552, as Python itself would."""
        stats = self.path_stats(self.path)
        words = (0, int(stats["mtime"]), int(stats["size"]))
        header = importlib.util.MAGIC_NUMBER + b"".join((word % _WORD).to_bytes(4, "little") for word in words)
        self.set_data(importlib.util.cache_from_source(self.path), header + marshal.dumps(code))
