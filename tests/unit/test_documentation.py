"""docs/ names files and folders that exist, and every source folder and file is described."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .. import module_map
from .test_rooms import FOLDERS, ROOMS, ROOT

MAP = ROOT / "docs" / "architecture.md"
READMES = tuple(sorted(path for room in (*ROOMS, "laboratory") for path in (ROOT / room).rglob("README.md")))
"""Those of the folders, which say how to add things."""
NAME_PATHS = (MAP, ROOT / "CONTRIBUTING.md", *READMES)
DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted({*(ROOT / "laboratory").rglob("*.md"), *READMES}),
)
CODE = re.compile(r"`([^`\s]+)`")
FILE_NAME = re.compile(r"\w[\w-]*\.(?:py|c|h|def|toml|md)")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def map_rows() -> Iterator[tuple[list[str], str]]:
    """Yields the folders that a row of the architecture's tables is about, and its other cells."""
    for line in MAP.read_text().splitlines():
        first, _, rest = line.removeprefix("|").partition("|")
        folders = [name for name in CODE.findall(first) if name.endswith("/")]
        if line.startswith("|") and folders:
            yield folders, rest


def named_paths(document: Path) -> Iterator[str]:
    """Yields paths from the checkout's root, as a document writes them: in backticks, with a slash."""
    for line in document.read_text().splitlines():
        yield from (name for name in CODE.findall(line) if re.fullmatch(r"[\w.-]+(?:/[\w.-]*)+", name))


def files_named() -> set[str]:
    return {path.name for room in (*ROOMS, "tests", "docs", "laboratory") for path in (ROOT / room).rglob("*")} | {
        path.name for path in ROOT.iterdir()
    }


def test_every_source_folder_is_in_the_architecture_s_tables() -> None:
    mapped = {folder for folders, _ in map_rows() for folder in folders}
    assert sorted({f"{folder.relative_to(ROOT)}/" for folder in FOLDERS} - mapped) == []


def test_the_list_of_source_files_is_printed_from_them() -> None:
    assert module_map.PAGE.read_text(encoding="utf-8") == module_map.page(), "python -m tests.module_map"


def test_every_source_file_says_what_it_is() -> None:
    sources = [path for room in module_map.ROOMS for folder in module_map.folders(room) for path in folder.iterdir()]
    files = [path for path in sources if path.suffix in (".py", ".c") and path.name != "__init__.py"]
    assert len(files) > 500
    assert [str(path.relative_to(ROOT)) for path in files if len(module_map.described(path)) < 10] == []


@pytest.mark.parametrize("document", NAME_PATHS, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_exist(document: Path) -> None:
    named = list(named_paths(document))
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("document", NAME_PATHS, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_names_exist(document: Path) -> None:
    known = files_named()
    assert [
        name for name in CODE.findall(document.read_text()) if FILE_NAME.fullmatch(name) and name not in known
    ] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_left_of_a_merge(document: Path) -> None:
    assert [line for line in document.read_text().splitlines() if line.startswith(("<<<<<<< ", ">>>>>>> "))] == []


def anchors(document: Path) -> set[str]:
    """Returns the anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for link in LINK.findall(document.read_text()):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_a_path_of_the_laboratory_leads_somewhere() -> None:
    """The pages name its files by path: the site of the documentation does not contain them."""
    named = {name for page in DOCUMENTS for name in named_paths(page) if name.startswith("laboratory/")}
    assert len(named) > 15
    assert sorted(name for name in named if not (ROOT / name).exists()) == []
