"""Each folder of the product imports only what its docstring allows."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PRODUCT = Path(__file__).parents[2] / "phantora_async"
FOLDERS = ("commands", "coordinator", "diagnosis", "ingest", "liveness", "report")
OURS = ("emu", "netsim", "profiles", "phantora_async")


def allowed(folder: str) -> set[str]:
    """The names in the docstring's line ``Imports: ...``."""
    docstring = ast.get_docstring(ast.parse((PRODUCT / folder / "__init__.py").read_text())) or ""
    (line,) = (line for line in docstring.splitlines() if line.startswith("Imports: "))
    return set(line.removeprefix("Imports: ").removesuffix(".").split(", "))


def imported(path: Path) -> set[str]:
    """Modules of this repository that a file imports: ``netsim``, ``emu.contract``, ``ingest`` (of the product)."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    found = set()
    for name in names:
        top, _, rest = name.partition(".")
        if top == "phantora_async":
            found.add(rest.partition(".")[0])
        elif top == "emu":
            found.add(f"emu.{rest.partition('.')[0]}")
        elif top in OURS:
            found.add(top)
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_what_its_docstring_allows(folder: str) -> None:
    files = list((PRODUCT / folder).rglob("*.py"))
    assert files
    used = set().union(*map(imported, files)) - {folder}
    assert used == allowed(folder)


def test_of_emu_the_product_imports_the_contract_alone() -> None:
    for path in PRODUCT.rglob("*.py"):
        assert {name for name in imported(path) if name.startswith("emu")} <= {"emu.contract"}, path


def test_the_folders_form_no_circle() -> None:
    uses = {folder: allowed(folder) & set(FOLDERS) for folder in FOLDERS}
    while uses:
        free = {folder for folder, needed in uses.items() if not needed & uses.keys()}
        assert free, f"these import each other: {sorted(uses)}"
        uses = {folder: needed for folder, needed in uses.items() if folder not in free}
