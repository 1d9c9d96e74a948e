"""Which package of netsim may import which, as their docstrings say."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import netsim

ROOT = Path(netsim.__file__).parent
BASE = {"errors", "units", "fields"}
MAY_IMPORT = {
    "native": {"errors"},
    "topology": BASE,
    "simulation": {"native", "topology", *BASE},
    "collectives": {"topology", "simulation", *BASE},
    "tools": {"native", "topology", "simulation", "collectives", *BASE},
    "bench": {"topology", "simulation", *BASE},
}


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("netsim.")}


def test_every_package_is_listed() -> None:
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == MAY_IMPORT.keys()


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_what_it_may(package: str) -> None:
    files = list((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        assert _imported(path) <= MAY_IMPORT[package] | {package}, path
