"""Reads the text of a script and of the user's own modules that it imports, from the files. Nothing is executed."""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_FILES = 100
MOST_NBYTES = 1 << 20
"""The most bytes of one file."""
_DEEPEST = 4
"""The most programs that run one another."""
_INSTALLED = frozenset(("site-packages", "dist-packages"))


@dataclass(frozen=True, eq=False)
class Source:
    """One file that was read."""

    name: str
    """The file's name in messages to the user."""
    tree: ast.Module
    digest: str = ""
    """The digest of its text."""


def source_of(text: str, name: str = "train.py") -> Source | None:
    """The parsed text; None if it is no Python."""
    try:
        return Source(name, ast.parse(text), hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest())
    except (SyntaxError, ValueError, RecursionError):
        return None


def last_name(expression: ast.expr) -> str:
    """The last name of an expression, such as ``get_rank`` of ``dist.get_rank``; empty if it has none."""
    if isinstance(expression, ast.Attribute):
        return expression.attr
    return expression.id if isinstance(expression, ast.Name) else ""


def sources_of(script: Path) -> list[Source]:
    """The script first, then the modules that it imports from its own folder and from the working directory, wherever
    in its text. Files that cannot be read are left out, and so are installed packages.
    """
    found: list[Source] = []
    folders = [script.absolute().parent, Path.cwd()]
    unread, seen = [script.absolute()], set[Path]()
    while unread and len(seen) < MOST_FILES:
        file = unread.pop(0)
        if file in seen or (_INSTALLED.intersection(file.parts[:-1]) and found):
            continue
        seen.add(file)
        source = _read(file, script if file == script.absolute() else Path(file.name))
        if source is not None:
            found.append(source)
            unread += (path for names in _imports(source.tree, file) for path in _files(names, folders, file))
    return found


def program_of(script: Path) -> Path:
    """The script, or the file that it runs as the main program: ``runpy.run_path('train.py', run_name='__main__')`` of
    a program that changes something before.
    """
    for _ in range(_DEEPEST):
        source = _read(script, script)
        found = None if source is None else next(_run_by(source.tree), None)
        if found is None or not found.is_file():
            break
        script = found
    return script


def _run_by(tree: ast.Module) -> Iterator[Path]:
    """Yields the files that calls of `runpy` with constants run as the main program."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        as_main = any(
            one.arg == "run_name" and isinstance(one.value, ast.Constant) and one.value.value == "__main__"
            for one in node.keywords
        )
        if as_main and name == "run_path":
            yield Path(str(node.args[0].value))
        elif as_main and name == "run_module" and (file := module_file(str(node.args[0].value))) is not None:
            yield file


def module_file(name: str) -> Path | None:
    """The file that ``-m name`` runs, if it is the user's own: one below the working directory."""
    path = Path.cwd().joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__main__.py") if file.is_file()), None)


def _read(file: Path, name: Path) -> Source | None:
    try:
        found = file.stat()
        if found.st_size > MOST_NBYTES:
            return None
        return _parsed(file, str(name), (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    except (OSError, UnicodeDecodeError):
        return None


@functools.lru_cache(maxsize=2 * MOST_FILES)
def _parsed(file: Path, name: str, _state: tuple[int, ...]) -> Source | None:
    """The parsed file, which is read again if its state is another one: the trials of a sweep have one script."""
    return source_of(file.read_text(), name)


def _imports(tree: ast.Module, file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields for each import the number of folders above it at which it begins (0: it is absolute), and its dotted name
    in parts.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module.split(".") if node.module else []
            yield node.level, base
            yield from ((node.level, [*base, alias.name]) for alias in node.names)


def _files(found: tuple[int, list[str]], folders: Sequence[Path], file: Path) -> Iterator[Path]:
    """Yields the files that an import runs: the module's, and those of the packages that it is in."""
    level, names = found
    for folder in folders if not level else [file.parents[level - 1]] if level <= len(file.parents) else []:
        for depth in range(1, len(names) + 1):
            path = folder.joinpath(*names[:depth])
            yield from (one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file())
