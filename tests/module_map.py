"""The map of source files, made from their docstrings: `python -m tests.module_map` writes docs/data/module-map.md.

A Python module is described by the first sentence of its docstring, a C file by that of its first comment. Folders are
in the order of `ROOMS`, and a package is described by the first paragraph of its docstring.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "data" / "module-map.md"
ROOMS = {
    "phantora_async": "the product",
    "emu": "everything inside an emulated server",
    "netsim": "the network simulator",
    "profiles": "GPUs, clusters, hosts, costs",
    "formats": "one reader for each format",
}
HEAD = """\
# Every source file

Written by `python -m tests.module_map` from the first sentence of each file. The page
[architecture.md](../architecture.md) says how the parts work together.
"""
FOLDER_COMMENT = re.compile(r"/\*\s*(?:\n \*)?\s*(\w+)/: (.*?)\s*(?:\n \*\n|\*/)", re.DOTALL)
SENTENCE = re.compile(r"(.+?[.?!])(?:\s+[A-Z`\"(]|\s*$)", re.DOTALL)


def page() -> str:
    """Returns the whole page, as Markdown."""
    return HEAD + "".join(
        f"\n## {room}: {title}\n" + "".join(_folder(folder) for folder in folders(room))
        for room, title in ROOMS.items()
    )


def folders(room: str) -> list[Path]:
    """Returns the room's folders with sources, each before those within it. `emu/formats` is a link to another room."""
    found = {path.parent for path in (ROOT / room).rglob("*") if path.suffix in (".py", ".c", ".h", ".def")}
    return sorted(folder for folder in found if not folder.is_symlink())


def _folder(folder: Path) -> str:
    name = folder.relative_to(ROOT)
    sources = sorted(path for path in folder.iterdir() if path.suffix in (".py", ".c") and path.name != "__init__.py")
    rows = "".join(f"| `{path.name}` | {_cell(described(path))} |\n" for path in sources)
    table = f"\n| file | what it is |\n| --- | --- |\n{rows}" if rows else ""
    return f"\n### `{name}/`\n\n{_purpose(folder)}\n{table}"


def _purpose(folder: Path) -> str:
    package = folder / "__init__.py"
    if package.exists():
        return " ".join((_docstring(package) or "").partition("\n\n")[0].split())
    for path in sorted(folder.glob("*.[ch]")):
        if (found := FOLDER_COMMENT.match(path.read_text(encoding="utf-8"))) and found[1] == folder.name:
            text = " ".join(found[2].replace("\n *", " ").split())
            first = text.partition(" ")[0]
            return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text
    return ""


def described(path: Path) -> str:
    """Returns the first sentence of a source file."""
    if path.suffix == ".py":
        text = _docstring(path) or ""
    else:
        comment = re.match(r"/\*(.*?)\*/", path.read_text(encoding="utf-8"), re.DOTALL)
        text = re.sub(r"^ \* ?", "", comment[1], flags=re.MULTILINE).strip() if comment else ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    sentence = SENTENCE.match(paragraph)
    return sentence[1] if sentence else paragraph


def _docstring(path: Path) -> str | None:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
