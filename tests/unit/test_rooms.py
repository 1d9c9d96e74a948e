"""One way of the data: which room may import which."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = {
    "phantora_async": {"phantora_async", "emu", "netsim", "profiles"},
    "emu": {"emu"},
    "netsim": {"netsim"},
    "profiles": {"profiles"},
}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    files = list((ROOT / room).rglob("*.py"))
    assert files
    for path in files:
        assert imported(path) & ROOMS.keys() <= ROOMS[room], path


def test_the_coordinator_never_imports_torch() -> None:
    for path in (ROOT / "phantora_async").rglob("*.py"):
        assert "torch" not in imported(path), path
