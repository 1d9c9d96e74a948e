"""A name means one thing, and private names stay where they are."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from .test_rooms import MODULES, PACKAGES, ROOMS, package_of, room_of, tree_of

MAX_MEANINGS = 3
"""The most meanings of a class's name: each room may have its own, but who reads several should not have to ask which
one is meant.
"""


def test_a_class_s_name_has_few_meanings() -> None:
    where: dict[str, list[str]] = {}
    for module in MODULES:
        for node in tree_of(module).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in where.items() if len(modules) > MAX_MEANINGS} == {}


@pytest.mark.parametrize("word", ["Place", "Memory", "Work", "Segment"])
def test_words_that_many_parts_use_mean_one_thing_each(word: str) -> None:
    """A word is the name of a class or of a type once. A name of another thing says of what it is: LaunchWork,
    MemoryPeaks.
    """
    found = [module for module in MODULES for node in tree_of(module).body if word in _types_of(node)]
    assert len(found) <= 1, found


def _types_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef):
        return [node.name]
    return (
        [target.id for target in node.targets if isinstance(target, ast.Name)] if isinstance(node, ast.Assign) else []
    )


def test_a_docstring_says_what_a_thing_is() -> None:
    """Not that it is "the same" as something that the reader has not in view."""
    for module in MODULES:
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                assert not (ast.get_docstring(node) or "").startswith("The same"), module


@pytest.mark.parametrize("package", [package for package in PACKAGES if room_of(package) == "phantora_async"])
def test_what_is_private_to_a_package_stays_there(package: str) -> None:
    """The names have one underscore: those of objects, modules and base classes."""
    trees = {name: tree_of(name) for name in MODULES if package_of(name) == package}
    own = {name for tree in trees.values() for name in _private_names(tree)}
    reached = [
        f"{module}:{node.lineno} {node.attr}"
        for module, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own | NOT_PRIVATE
    ]
    reached += [
        f"{module}:{node.lineno} {alias.name}"
        for module, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if _is_private(alias.name) and alias.name not in own
    ]
    reached += [f"{module}: {base}" for module, tree in trees.items() for base in _overridden(module, tree)]
    assert reached == []


NOT_PRIVATE = frozenset(
    (
        "_asdict",
        "_fields",
        "_make",
        "_replace",  # a NamedTuple's
        "_value_",  # an Enum's
        "_exit",  # os._exit, the end of a process without its exit handlers
        "_ArgumentGroup",
        "_actions",  # argparse's: it has no public names for them
    )
)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _private_names(tree: ast.AST) -> Iterator[str]:
    """Yields the private names that the module itself defines: functions, classes, variables, attributes of ``self``
    and slots.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def _overridden(module: str, tree: ast.AST) -> Iterator[str]:
    """Yields private methods that classes define over those of a base class in another package."""
    elsewhere: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and room_of(node.module or "") in ROOMS:
            elsewhere |= {alias.asname or alias.name: node.module or "" for alias in node.names}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for base in node.bases:
            source = elsewhere.get(base.id, "") if isinstance(base, ast.Name) else ""
            if source in MODULES and package_of(source) != package_of(module):
                theirs = {name for name in _private_names(tree_of(source)) if _is_private(name)}
                mine = {name for name in _private_names(node) if _is_private(name)}
                yield from (f"{node.name} overrides {name}" for name in sorted(mine & theirs))
