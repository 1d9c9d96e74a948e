"""Finds which installed packages a script imports, by reading its text and that of its own modules. Nothing runs."""

from __future__ import annotations

import ast
import itertools
import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder

from ..contract.job import RankView

_MOST_FILES = 500
"""The most files of the user's that are read."""
_MOST_NBYTES = 1 << 20
_INSTALLED = tuple({os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("purelib", "platlib")})
_PACKAGES_FOLDERS = ("site-packages", "dist-packages")
"""Names of the folders where pip installs packages: an environment may see those of another one, of the system or of
the user.
"""


def scripts(job: RankView) -> list[str]:
    """Returns the Python files that the command names: the script, or what a launcher is to start. Modules are looked
    up.
    """
    if job.module:
        return [file for file in [_file_of(job.script, [os.getcwd(), *sys.path])] if file]
    if not job.launcher:
        return [os.path.join(job.script, "__main__.py") if os.path.isdir(job.script) else job.script]
    words = (job.script, *job.arguments)
    found = [word for word in words if word.endswith(".py") and os.path.isfile(word)]
    named = (name for option, name in itertools.pairwise(words) if option in ("-m", "--module"))
    return found + [file for file in (_file_of(name, [os.getcwd(), *sys.path]) for name in named) if file]


def folders(job: RankView) -> list[str]:
    """Returns the folders where a script's own modules are: a rank looks there first."""
    own = [os.path.dirname(os.path.realpath(file)) for file in scripts(job)]
    return list(dict.fromkeys([*own, *([os.getcwd()] if job.module or job.launcher else [])]))


def is_installed(file: str | None) -> bool:
    """Tells whether a file is a package's, as pip installs them, or the folder of packages itself."""
    if file is None:
        return False
    real = os.path.join(os.path.realpath(file), "")
    return real.startswith(_INSTALLED) or any(f"{os.sep}{name}{os.sep}" in real for name in _PACKAGES_FOLDERS)


def read(job: RankView) -> tuple[list[str], set[str]]:
    """Returns the names that the script imports from installed packages, wherever in its text: `package.module`, or
    `package:name` for `from package import name`; the standard library is left out. And returns the user's files that
    were read.
    """
    path = [*folders(job), *sys.path]
    wanted: dict[str, None] = {}
    unread, seen = scripts(job), set[str]()
    while unread and len(seen) < _MOST_FILES:
        file = unread.pop()
        if file in seen:
            continue
        seen.add(file)
        for module, name in _imports(file):
            top = module.partition(".")[0]
            spec = _spec(top, path)
            if top in sys.stdlib_module_names or spec is None:
                continue
            if is_installed(_location(spec)):
                wanted[f"{module}:{name}" if name else module] = None
            else:
                names = [module, *([f"{module}.{name}"] if name else [])]
                unread.extend(filter(None, (_file_of(each, path) for each in names)))
    return list(wanted), seen


def _imports(file: str) -> Iterator[tuple[str, str]]:
    """Yields module and name ("" for a whole module) of each import statement. Relative ones begin at the file's
    folder.
    """
    try:
        if os.path.getsize(file) > _MOST_NBYTES:
            return
        with open(file, "rb") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = _package_of(file).split(".")
                base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [base])])
            for alias in node.names:
                if base:
                    yield base, "" if alias.name == "*" else alias.name


def _package_of(file: str) -> str:
    """Returns the dotted name of the package that the file is in, as far as folders with `__init__.py` go."""
    names: list[str] = []
    folder = os.path.dirname(os.path.realpath(file))
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        names.insert(0, name)
    return ".".join(names)


def _spec(name: str, path: Sequence[str]) -> ModuleSpec | None:
    try:
        return PathFinder.find_spec(name, list(path))
    except (ImportError, KeyError, OSError, ValueError):  # KeyError: a folder without `__init__.py` within another one
        return None


def _location(spec: ModuleSpec) -> str | None:
    if spec.has_location and spec.origin:
        return spec.origin
    return next(iter(spec.submodule_search_locations or ()), None)


def _file_of(name: str, path: Sequence[str]) -> str | None:
    """Returns the file of a module, found without importing its packages: a package's `__init__.py`; with `-m` its
    `__main__.py` is left out.
    """
    spec: ModuleSpec | None = None
    full = ""
    for part in name.split("."):
        full = f"{full}.{part}" if full else part
        spec = _spec(full, path)
        if spec is not None and spec.has_location:
            path = list(spec.submodule_search_locations or ())
        else:  # a folder without `__init__.py`; its spec looks for its parent among imported modules
            path = [os.path.join(folder, part) for folder in path if os.path.isdir(os.path.join(folder, part))]
    return spec.origin if spec is not None and spec.has_location else None
