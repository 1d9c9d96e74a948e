"""Which part of profiles may import which."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import profiles

ROOT = Path(profiles.__file__).parent
MAY_IMPORT = {
    "descriptions": ("profiles.errors", "profiles.descriptions"),
    "kernel_names": ("profiles.kernel_names",),
    "signature": ("profiles.errors", "profiles.signature"),
    "models": ("profiles.errors", "profiles.signature", "profiles.descriptions", "profiles.kernel_names",
               "profiles.models"),
}  # fmt: skip


def imports(path: Path) -> set[str]:
    tree = ast.walk(ast.parse(path.read_text()))
    return {node.module or "" for node in tree if isinstance(node, ast.ImportFrom)} - {"__future__"}


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_a_folder_imports_only_what_it_may(folder: str) -> None:
    files = list((ROOT / folder).glob("*.py"))
    assert files
    for path in files:
        ours = [one for one in imports(path) if one.partition(".")[0] == "profiles"]
        assert [one for one in ours if not one.startswith(MAY_IMPORT[folder])] == [], path


def test_no_model_imports_the_tools() -> None:
    for path in ROOT.rglob("*.py"):
        if "tools" not in path.parts:
            assert not [one for one in imports(path) if one.startswith("profiles.tools")], path
