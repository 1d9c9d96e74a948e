"""Finds which variables and attributes follow from a statement: what reads them follows from it, too."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from .expressions import name_of, walk


class _Change(NamedTuple):
    """A place that sets variables or attributes, or changes what they hold."""

    names: frozenset[str]
    values: Sequence[ast.expr]
    """The values that they were computed from."""
    tests: tuple[ast.expr, ...]
    """The tests of the statements around it, if it assigns."""
    assigns: bool
    """False for a method that is called with the values: `losses.append(loss)` changes `losses`."""


def followers(body: Sequence[ast.stmt], line: int, also: frozenset[str]) -> frozenset[str]:
    """Returns names of variables, and of attributes with a dot before them (`.done`), that follow from what runs in
    this line of the body, or from the names in `also`. A name that is assigned from such a name, or under a condition
    that has one, follows, too.
    """
    changes = list(_changes(body, ()))
    found = also
    while True:
        more = found.union(
            *(
                change.names
                for change in changes
                if any(
                    mentions(one, found) or (change.assigns and _covers(one, line))
                    for one in (*change.values, *change.tests)
                )
            )
        )
        if more == found:
            return found
        found = more


def mentions(node: ast.AST, names: frozenset[str]) -> bool:
    """Tells whether the expression uses one of these names."""
    return any(name_of(part) in names for part in ast.walk(node))


def sources(body: Sequence[ast.stmt], expression: ast.expr, known: Callable[[ast.expr], bool]) -> Iterator[ast.expr]:
    """Yields the values that the expression's variables are assigned in this body, and the tests under which they are,
    and so on from these. `known`: tells whether the value of an expression is known; such an expression is not looked
    into.
    """
    changes = [change for change in _changes(body, ()) if change.assigns]
    seen: set[str] = set()
    todo = [expression]
    while todo:
        for name in _names(todo.pop(), known) - seen:
            seen.add(name)
            for change in changes:
                if name in change.names:
                    yield from (*change.values, *change.tests)
                    todo += (*change.values, *change.tests)


def of_callee(names: frozenset[str], module: Sequence[ast.stmt]) -> frozenset[str]:
    """Returns the names that a function's caller sees, too: attributes, and variables that a function of the file
    declares global.
    """
    nodes = (node for statement in module for node in ast.walk(statement))
    declared = {name for node in nodes if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    return frozenset(name for name in names if name.startswith(".") or name in declared)


def _changes(body: Sequence[ast.AST], tests: tuple[ast.expr, ...]) -> Iterator[_Change]:
    for statement in body:
        test, iterable = getattr(statement, "test", None), getattr(statement, "iter", None)
        inner = [
            part
            for name in ("body", "orelse", "finalbody", "handlers", "cases")
            for part in getattr(statement, name, ())
        ]
        yield from _changes(inner, tests if test is None else (*tests, test))
        for node in walk([part for part in (test, iterable) if part is not None] if inner else [statement]):
            match node:
                case ast.Assign(targets=targets, value=value):
                    yield _Change(_targets(targets), [value], tests, True)
                case ast.AugAssign() | ast.AnnAssign() | ast.NamedExpr() if node.value is not None:
                    yield _Change(_targets([node.target]), [node.value], tests, True)
                case ast.Call(func=ast.Attribute(value=owner), args=values):
                    yield _Change(_targets([owner]), values, (), False)


def _names(node: ast.AST, known: Callable[[ast.expr], bool]) -> set[str]:
    if isinstance(node, ast.expr) and known(node):
        return set()
    found = {name} if (name := name_of(node)) else set()
    return found.union(*(_names(child, known) for child in ast.iter_child_nodes(node)))


def _targets(targets: Sequence[ast.expr]) -> frozenset[str]:
    found: set[str] = set()
    for target in targets:
        match target:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                found |= _targets(parts)
            case ast.Starred(value=inner) | ast.Subscript(value=inner):
                found |= _targets([inner])
            case _ if name := name_of(target):
                found.add(name)
    return frozenset(found)


def _covers(node: ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)
