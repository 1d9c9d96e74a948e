"""The table against the installed packages. With every version of tox.ini; PyTorch's nightly wheel has an index of its
own, so it is tried only where one is installed: `phantora-async doctor --python PATH` shows the same.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emu.contract import installed
from emu.private import symbols, table
from emu.private.names import TRIED

EMU = Path(installed.EMU)
HOOK = EMU / "hook"
FINE = ("ok", "not in this version", "not installed")


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Returns what the interpreter that has the packages says."""
    command = [sys.executable, "-c", installed.program("start.doctor"), str(EMU)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "failure" in told:
        pytest.skip(told["failure"])
    return told


@pytest.mark.versions
def test_all_names_are_as_the_table_says(found: dict[str, Any]) -> None:
    names = [(row["purpose"], name) for row in found["private"] for name in row["names"]]
    assert len(names) > 100
    assert [(purpose, name) for purpose, name in names if name["state"] not in FINE] == []


def test_files_use_the_names_that_are_said_of_them() -> None:
    for purpose in table.PURPOSES.values():
        words = {part for name in purpose.names for part in name.path.split(".")}
        for file in purpose.files:
            text = (EMU.parent / file).read_text()
            assert f'"{purpose.key}"' in text or any(word in text for word in words), (purpose.key, file)


def test_versions_are_those_that_were_tried() -> None:
    for purpose in table.PURPOSES.values():
        for name in purpose.names:
            assert set(name.seen) <= set(TRIED.get(purpose.package, ())), name


def test_each_key_and_each_order_names_something() -> None:
    full = {name.full: purpose.key for purpose in table.PURPOSES.values() for name in purpose.names}
    for name, keys in table.ORDER.items():
        assert name in full
        assert set(keys) <= set(table.PURPOSES)


def test_names_that_several_purposes_change_have_an_order() -> None:
    """A name that two purposes of the table have, and that both change."""
    sources = {
        purpose.key: [(EMU.parent / file).read_text() for file in purpose.files] for purpose in table.PURPOSES.values()
    }
    by_name: dict[str, list[str]] = {}
    for purpose in table.PURPOSES.values():
        for name in purpose.names:
            short = name.path.rpartition(".")[2]
            changed = re.compile(rf'change\((?:f?"[^"]*|_)?{re.escape(short)}"')
            if any(changed.search(text) for text in sources[purpose.key]):
                by_name.setdefault(name.full, []).append(purpose.key)
    for full, keys in by_name.items():
        assert len(keys) == 1 or set(keys) <= set(table.ORDER.get(full, ())), (full, keys)


def test_all_private_symbols_of_the_hook_are_in_the_list() -> None:
    listed = {symbol.name for symbol in symbols.read()}
    pattern = re.compile(r"\b(_ZN?K?\d*\w+|_PyEval_EvalFrameDefault|_PyInterpreterState_\w+)\b")
    used = {name for path in HOOK.rglob("*.[ch]") for name in pattern.findall(path.read_text())}
    assert {name for name in used if re.match(r"_Z(N|dl)|_Py(Eval_Eval|Interp)", name)} <= listed
    assert len({symbol.id for symbol in symbols.read()}) == len(symbols.read()) >= 14


DOCUMENTED = frozenset(("_getframe", "_current_frames"))
"""Names that CPython's documentation has."""


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _defined(tree: ast.AST) -> Iterator[str]:
    """Yields the names that a file of ours defines: functions, classes, variables, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def _used(tree: ast.AST) -> Iterator[str]:
    """Yields the attributes that a file reads, and what it imports from other packages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (*(node.module or "").split("."), *(alias.name for alias in node.names))
        elif isinstance(node, ast.Import):
            yield from (part for alias in node.names for part in alias.name.split("."))


def test_private_names_of_others_are_used_in_files_that_the_table_names() -> None:
    """Names of operators are not private, whatever they begin with: PyTorch saves them in exported programs."""
    torch = pytest.importorskip("torch")
    trees = {str(path.relative_to(EMU.parent)): ast.parse(path.read_text()) for path in EMU.rglob("*.py")}
    ours = {name for tree in trees.values() for name in _defined(tree)}
    foreign = {file: set(filter(_is_private, _used(tree))) - ours - DOCUMENTED for file, tree in trees.items()}
    listed: dict[str, set[str]] = {}
    for purpose in table.PURPOSES.values():
        for name in purpose.names:
            words = {*name.module.split("."), *name.path.split("."), *name.mentions.split()}
            for file in purpose.files:
                listed.setdefault(file, set()).update(words)
    missing = {file: names - listed.get(file, set()) for file, names in foreign.items()}
    for file, names in missing.items():
        assert [name for name in names if not hasattr(torch.ops.aten, name)] == [], file
    assert sum(map(len, foreign.values())) > 40
