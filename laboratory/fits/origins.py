"""Checks where the constants of the models come from: `python -m laboratory.fits.origins` prints how many come from
what.

profiles/models/origins.toml lists them by file and name: which measurement (a file of the repository) or which
published text each rests on, and how. A constant is a name of a module of profiles/models that is given numbers, or a
function with a figure in it (laboratory.fits.figures). A test keeps the list: a constant without an origin fails, and
so does an origin without its constant.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from formats.toml import read_toml
from laboratory.fits.figures import FOLDER, Models

LIST = FOLDER / "origins.toml"
HOW = {
    "fitted": "found by fitting a model to measured times",
    "measured": "read off a measurement",
    "published": "from a library's code or NVIDIA's documents",
    "assumed": "an assumption: nothing was measured",
}


@dataclass(frozen=True, slots=True)
class Origin:
    how: str
    source: str
    """A file of the repository, or the place of a publication."""
    what: str
    """Says what was fitted or measured."""


def constants(folder: Path = FOLDER) -> set[str]:
    """The names of constants, such as `kernels/elementwise.py:CAST`; figures within a function have the function's
    name.
    """
    found: set[str] = set()
    figures = {(figure.file, figure.line) for figure in Models().figures} if folder == FOLDER else set()
    for path in sorted(folder.rglob("*.py")):
        file = str(path.relative_to(folder))
        lines = {line for of, line in figures if of == file}
        for statement in ast.parse(path.read_text()).body:
            end = statement.end_lineno or statement.lineno
            for name in _names(statement, bool(lines & set(range(statement.lineno, end + 1)))):
                found.add(f"{file}:{name}")
    return found


def _names(statement: ast.stmt, has_figures: bool) -> list[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name] if has_figures else []
        case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
            names = [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]
            numbers = any(
                isinstance(node, ast.Constant) and type(node.value) in (int, float) for node in ast.walk(value)
            )
            return [name for name in names if name.isupper() and name[0] != "_"] if numbers else []
    return []


def origins(path: Path = LIST) -> dict[str, Origin]:
    """The origins by constant. Raises ValueError for a constant that is listed twice, or an origin that says
    nothing.
    """
    found: dict[str, Origin] = {}
    _, values = read_toml(path, ValueError)
    for number, entry in enumerate(values["origin"], start=1):
        origin = Origin(entry["how"], entry["source"], entry["what"])
        if origin.how not in HOW or not origin.source or not origin.what:
            raise ValueError(f"{path}: origin {number}: says {entry['how']!r}, {entry['source']!r}, {entry['what']!r}")
        for name in entry["names"]:
            constant = f"{entry['file']}:{name}"
            if constant in found:
                raise ValueError(f"{path}: {constant} is listed twice")
            found[constant] = origin
    return found


def main() -> None:
    listed = origins()
    for constant, origin in sorted(listed.items()):
        print(f"{constant}: {origin.how}, {origin.source}: {origin.what}")
    counted = Counter(origin.how for origin in listed.values())
    print(f"{len(listed)} constants: " + ", ".join(f"{counted[how]} {how}" for how in HOW))


if __name__ == "__main__":
    main()
