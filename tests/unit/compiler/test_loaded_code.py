"""The code of compiled graphs, as ranks load it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from emu.compiler import loaded_code


def _reload_python_module(key: str, path: str, set_sys_modules: bool) -> ModuleType:
    """Takes the place of torch's function: it is called for code that cannot be used."""
    raise RuntimeError(f"Failed to import {path}")


@pytest.mark.parametrize("writes_no_bytecode", [False, True])
def test_a_graph_s_code_is_compiled_once(
    writes_no_bytecode: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code is compiled once also where PYTHONDONTWRITEBYTECODE is set."""
    monkeypatch.setattr(sys, "dont_write_bytecode", writes_no_bytecode)
    compiled: list[Any] = []
    compile_source = loaded_code._Loader.source_to_code

    def counted(self: Any, data: Any, path: Any, **options: Any) -> Any:
        compiled.append(path)
        return compile_source(self, data, path, **options)

    monkeypatch.setattr(loaded_code._Loader, "source_to_code", counted)
    reload = loaded_code._as_bytecode(_reload_python_module)
    path = tmp_path / "graph.py"
    path.write_text("def call():\n    return 3\n")
    first, second = (reload("graph", str(path), set_sys_modules=False) for _ in range(2))
    assert first is not second
    assert compiled == [str(path)]
    for module in (first, second):
        assert (module.call(), module.key, module.__file__) == (3, "graph", str(path))
        assert module.call.__code__.co_filename == str(path)
    assert [kept.suffix for kept in (tmp_path / "__pycache__").iterdir()] == [".pyc"]
    assert f"{__name__}.graph" not in sys.modules


def test_code_that_cannot_be_used_is_torch_s_to_tell(tmp_path: Path) -> None:
    path = tmp_path / "graph.py"
    path.write_text("def call(\n")
    with pytest.raises(RuntimeError, match="Failed to import"):
        loaded_code._as_bytecode(_reload_python_module)("graph", str(path))
