"""docs/ names files and folders that exist, and the module map has every source folder."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .test_rooms import FOLDERS, ROOMS, ROOT

MAP = ROOT / "docs" / "architecture.md"
NAME_PATHS = (MAP, ROOT / "CONTRIBUTING.md")
DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)
CODE = re.compile(r"`([^`\s]+)`")
FILE_NAME = re.compile(r"\w[\w-]*\.(?:py|c|h|def|toml|md)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
MOST_WORDS = 20_000
"""In the pages of docs/, those of measurements (docs/data/) left out."""


def map_rows() -> Iterator[tuple[list[str], str]]:
    """The folders that a row of the module map is about, and its other cells."""
    for line in MAP.read_text().splitlines():
        first, _, rest = line.removeprefix("|").partition("|")
        folders = [name for name in CODE.findall(first) if name.endswith("/")]
        if line.startswith("|") and folders:
            yield folders, rest


def named_paths(document: Path) -> Iterator[str]:
    """Paths from the checkout's root, as a document writes them: in backticks, with a slash."""
    for line in document.read_text().splitlines():
        yield from (name for name in CODE.findall(line) if re.fullmatch(r"[\w.-]+(?:/[\w.-]*)+", name))


def files_named() -> set[str]:
    return {path.name for room in (*ROOMS, "tests", "docs") for path in (ROOT / room).rglob("*")} | {
        path.name for path in ROOT.iterdir()
    }


def test_every_source_folder_is_in_the_module_map() -> None:
    mapped = {folder for folders, _ in map_rows() for folder in folders}
    assert sorted({f"{folder.relative_to(ROOT)}/" for folder in FOLDERS} - mapped) == []


@pytest.mark.parametrize("room", ROOMS)
def test_every_source_file_is_in_the_module_map(room: str) -> None:
    """In the row of its folder. The C sources of `emu/hook` are described by folder."""
    named = {folder + name for folders, cells in map_rows() for folder in folders for name in CODE.findall(cells)}
    sources = [
        path.relative_to(ROOT)
        for path in (ROOT / room).rglob("*")
        if path.suffix in (".py", ".c") and path.name != "__init__.py" and "hook/" not in f"{path.relative_to(ROOT)}"
    ]
    assert sorted(str(path) for path in sources if str(path) not in named) == []


def test_the_files_of_the_module_map_exist() -> None:
    missing = [
        f"{folders[0]}{name}"
        for folders, cells in map_rows()
        for name in CODE.findall(cells)
        if FILE_NAME.fullmatch(name) and not (ROOT / folders[0] / name).is_file()
    ]
    assert missing == []


@pytest.mark.parametrize("document", NAME_PATHS, ids=lambda path: path.name)
def test_paths_exist(document: Path) -> None:
    named = list(named_paths(document))
    assert len(named) > 40
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("document", NAME_PATHS, ids=lambda path: path.name)
def test_file_names_exist(document: Path) -> None:
    known = files_named()
    assert [
        name for name in CODE.findall(document.read_text()) if FILE_NAME.fullmatch(name) and name not in known
    ] == []


def walks() -> list[tuple[str, list[str]]]:
    """Of the map's walks: the parts of each, which begin anew, and the folders that it names in order."""
    told = MAP.read_text().partition("walks\n")[2].partition("\n## ")[0]
    found = []
    for walk in told.split("\n### ")[1:]:
        title, _, text = walk.partition("\n")
        for part in re.split(r"(?:^|\n)(?:Taking in|Executing|Back|Forward): ", text):
            files = [name for name in CODE.findall(part) if "/" in name and FILE_NAME.search(name)]
            found.append((title, ["/".join(name.split("/")[: 3 if "/hook/" in name else 2]) for name in files]))
    return found


def turns(folders: list[str]) -> int:
    """How often the walk comes back to a folder that it has left."""
    rests = [folder for folder, _ in itertools.groupby(folders)]
    return len(rests) - len(set(rests))


def test_walks_through_the_code_turn_back_once_at_most() -> None:
    assert turns(["a", "a", "b", "c"]) == 0
    assert turns(["a", "b", "a", "c", "b"]) == 2
    assert len({title for title, _ in walks()}) == 10
    assert [title for title, folders in walks() if turns(folders) > 1] == []
    assert sum(map(len, (folders for _, folders in walks()))) > 50


def test_the_pages_for_users_are_short() -> None:
    words = {page.name: len(page.read_text().split()) for page in (ROOT / "docs").glob("*.md")}
    assert sum(words.values()) <= MOST_WORDS, f"shorten a page, or move figures to docs/data/: {words}"


def anchors(document: Path) -> set[str]:
    """Of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for link in LINK.findall(document.read_text()):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        assert target.is_file(), link
        assert not anchor or anchor in anchors(target), link
