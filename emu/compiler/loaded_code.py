"""The Python code of a compiled graph is read from its file as bytecode: ranks that load it need not compile it."""

from __future__ import annotations

import functools
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

from ..private.changes import changes


def install() -> None:
    """In the forker, once, before torch compiles."""
    changes.when_imported("code of compiled graphs", lambda names: names.change("_reload_python_module", _as_bytecode))


def _as_bytecode(reload: Any) -> Any:
    @functools.wraps(reload)
    def reload_as_bytecode(key: str, path: str, set_sys_modules: bool = True) -> ModuleType:
        name = f"{reload.__module__}.{key}"
        try:
            code = SourceFileLoader(name, path).get_code(name)  # kept beside the file, as for imported modules
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
