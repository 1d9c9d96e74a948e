"""Runs the models with other figures: each number that was fitted can be scaled, without a change of their source.

A figure is a float in the source of `profiles.models`, but not one that states a structure: whole numbers up to 16 and
powers of ten within functions (bytes of an item, passes, units), and the few of `machine.py`, which all models share.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import log10
from pathlib import Path
from types import CodeType, ModuleType

import profiles.models
from profiles.descriptions.gpu import Gpu
from profiles.models.machine import Estimate
from profiles.signature import Signature

PACKAGE = "profiles.models"
FOLDER = Path(profiles.models.__file__).parent
SHARED = frozenset(("machine.py", "errors.py", "limits.py", "bound.py", "power.py"))
"""The files without figures of one model's."""
_NAME = "__figures__"
_STRUCTURE = 16.0

EstimateOf = Callable[[Gpu, Signature], Estimate]


@dataclass(frozen=True, slots=True)
class Figure:
    file: str
    """The path of the source below profiles/models."""
    line: int
    value: float


class _Marking(ast.NodeTransformer):
    """Replaces each figure by its place in a list."""

    def __init__(self, file: str, figures: list[Figure]) -> None:
        self._file = file
        self._figures = figures
        self._within = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._within += 1
        try:
            return self.generic_visit(node)
        finally:
            self._within -= 1

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not isinstance(node.value, float) or not self._is_figure(node.value):
            return node
        self._figures.append(Figure(self._file, node.lineno, node.value))
        return ast.copy_location(
            ast.Subscript(ast.Name(_NAME, ast.Load()), ast.Constant(len(self._figures) - 1), ast.Load()),
            node,
        )

    def _is_figure(self, value: float) -> bool:
        if not value or value == 1.0:
            return False
        return not self._within or not (
            (value <= _STRUCTURE and value.is_integer()) or (value > 0 and log10(value).is_integer())
        )


class Models:
    """Builds the models with figures of the caller's choice."""

    def __init__(self) -> None:
        self.figures: list[Figure] = []
        self._code: dict[str, tuple[Path, CodeType]] = {}
        for path in sorted(FOLDER.rglob("*.py")):
            file = str(path.relative_to(FOLDER))
            tree = ast.parse(path.read_text())
            if file not in SHARED:
                ast.fix_missing_locations(_Marking(file, self.figures).visit(tree))
            name = ".".join([PACKAGE, *path.relative_to(FOLDER).with_suffix("").parts]).removesuffix(".__init__")
            self._code[name] = path, compile(tree, str(path), "exec")

    def build(self, scales: Mapping[int, float]) -> EstimateOf:
        """Builds the models. `scales`: the factors on figures, by their place in `figures`."""
        values = [figure.value * scales.get(place, 1.0) for place, figure in enumerate(self.figures)]
        with _other_modules():
            finder = _Finder(self._code, values)
            sys.meta_path.insert(0, finder)
            try:
                found: EstimateOf = importlib.import_module(f"{PACKAGE}.dispatch").estimate
            finally:
                sys.meta_path.remove(finder)
        return found


@contextmanager
def _other_modules() -> Iterator[None]:
    """A context within which the models may be imported anew; after it all is as before."""
    kept = {name: module for name, module in sys.modules.items() if (name + ".").startswith(PACKAGE + ".")}
    for name in kept:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in [name for name in sys.modules if (name + ".").startswith(PACKAGE + ".")]:
            del sys.modules[name]
        sys.modules.update(kept)
        profiles.models = kept[PACKAGE]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, code: Mapping[str, tuple[Path, CodeType]], values: Sequence[float]) -> None:
        self._code = code
        self._values = values

    def find_spec(
        self, name: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._code:
            return None
        file = self._code[name][0]
        spec = importlib.machinery.ModuleSpec(name, self, origin=str(file), is_package=file.name == "__init__.py")
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(str(file.parent))
        return spec

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[_NAME] = self._values
        exec(self._code[module.__name__][1], vars(module))
