"""The contents of the build environment and of an sdist, and what is no part of the project."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LATER = {"tools", "bench"}
"""Folders of netsim that importing netsim does not import."""


def imported_when_loaded(path: Path) -> set[str]:
    """Returns the top-level packages that a module imports outside functions and `if TYPE_CHECKING`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_the_build_environment_has_what_netsim_imports() -> None:
    """setup.py asks netsim how its core is compiled, which imports netsim."""
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    built_with = {re.split(r"[<>=~! ]", requirement)[0] for requirement in requires}
    paths = [path for room in ("netsim", "formats") for path in (ROOT / room).rglob("*.py")]
    modules = [path for path in paths if not LATER & set(path.relative_to(ROOT).parts)]
    needed = set().union(*map(imported_when_loaded, modules)) - {"netsim", "formats"} - sys.stdlib_module_names
    assert needed <= built_with


def test_an_sdist_has_what_the_libraries_are_built_of() -> None:
    """setuptools adds Python files and package data by itself; MANIFEST.in names the folders and suffixes of others."""
    named = {
        (words[1], suffix.removeprefix("*"))
        for line in (ROOT / "MANIFEST.in").read_text().splitlines()
        if (words := line.split()) and words[0] == "recursive-include"
        for suffix in words[2:]
    }
    rooms = ("emu", "formats", "netsim", "phantora_async", "profiles")
    sources = {
        (room, path.suffix)
        for room in rooms
        for path in (ROOT / room).rglob("*")
        if path.suffix in (".c", ".h", ".def") and "lib" not in path.relative_to(ROOT).parts
    }
    assert sources - named == set()


def test_no_folder_of_a_run_and_no_home_of_a_developer_is_part_of_the_project() -> None:
    """A run in the folder of a script leaves files there that tell of the machine."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert len(files) > 1000
    assert [file for file in files if "phantora-runs" in file.parts] == []
    home = f"/{'root'}/".encode()
    assert [file for file in files if file.is_file() and home in file.read_bytes()] == []
