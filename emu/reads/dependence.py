"""Finds which variables and attributes follow from a statement: what reads them follows from it, too."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from .loop_exits import walk

_ASSIGNMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)


def followers(body: Sequence[ast.stmt], line: int, also: frozenset[str]) -> frozenset[str]:
    """Returns names of variables, and of attributes with a dot before them (`.done`), that follow from what runs in
    this line of the body, or from the names in `also`. A name that is assigned from such a name, or under a condition
    that has one, follows, too.
    """
    found = also
    while True:
        more = found | frozenset(_assigned(body, line, found, under=False))
        if more == found:
            return found
        found = more


def mentions(node: ast.AST, names: frozenset[str]) -> bool:
    """Tells whether the expression uses one of these names."""
    return any(_key(part) in names for part in ast.walk(node))


def sources(body: Sequence[ast.stmt], expression: ast.expr, known: Callable[[ast.expr], bool]) -> Iterator[ast.expr]:
    """Yields the values that the expression's variables are assigned in this body, and the tests under which they are,
    and so on from these. `known`: tells whether the value of an expression is known; such an expression is not looked
    into.
    """
    assignments = list(_assignments(body, ()))
    seen: set[str] = set()
    todo = [expression]
    while todo:
        for name in _names(todo.pop(), known) - seen:
            seen.add(name)
            for assigned, values in assignments:
                if name in assigned:
                    yield from values
                    todo += values


def _assignments(
    body: Sequence[ast.AST], tests: tuple[ast.expr, ...]
) -> Iterator[tuple[frozenset[str], tuple[ast.expr, ...]]]:
    """Yields the names that each assignment sets; its value, and the tests under which it is made."""
    for statement in body:
        test = getattr(statement, "test", None)
        under = tests if test is None else (*tests, test)
        inner = [
            part
            for name in ("body", "orelse", "finalbody", "handlers", "cases")
            for part in getattr(statement, name, ())
        ]
        yield from _assignments(inner, under)
        if isinstance(statement, _ASSIGNMENTS) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = frozenset(name for target in targets for name in _targets(target))
            yield names, (statement.value, *tests)


def _names(node: ast.AST, known: Callable[[ast.expr], bool]) -> set[str]:
    if isinstance(node, ast.expr) and known(node):
        return set()
    found = {key} if (key := _key(node)) else set()
    return found.union(*(_names(child, known) for child in ast.iter_child_nodes(node)))


def of_callee(names: frozenset[str], module: Sequence[ast.stmt]) -> frozenset[str]:
    """Returns the names that a function's caller sees, too: attributes, and variables that the function declares
    global.
    """
    declared = {name for node in walk(module) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    return frozenset(name for name in names if name.startswith(".") or name in declared)


def _key(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return f".{name}"
    return ""


def _assigned(body: Sequence[ast.stmt], line: int, names: frozenset[str], *, under: bool) -> Iterator[str]:
    for statement in body:
        test = getattr(statement, "test", None)
        controlled = under or (test is not None and (mentions(test, names) or _covers(test, line)))
        inner = [getattr(statement, part, ()) for part in ("body", "orelse", "finalbody")]
        inner += [handler.body for handler in getattr(statement, "handlers", ())]
        for part in inner:
            if isinstance(part, list):
                yield from _assigned(part, line, names, under=controlled)
        yield from _of_statement(statement, line, names, controlled)


def _of_statement(statement: ast.stmt, line: int, names: frozenset[str], controlled: bool) -> Iterator[str]:
    compound = any(getattr(statement, part, None) for part in ("body", "handlers"))
    here = not compound and _covers(statement, line)
    parts = [statement] if not compound else [getattr(statement, "test", None), getattr(statement, "iter", None)]
    for node in walk([part for part in parts if part is not None]):
        if isinstance(node, _ASSIGNMENTS):
            value = node.value
            if here or controlled or (value is not None and (mentions(value, names) or _covers(value, line))):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    yield from _targets(target)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and any(mentions(argument, names) for argument in node.args)
        ):
            yield from _targets(node.func.value)  # `losses.append(loss)` changes `losses`


def _targets(target: ast.expr) -> Iterator[str]:
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _targets(part)
        case ast.Starred(value=inner) | ast.Subscript(value=inner):
            yield from _targets(inner)
        case _:
            if key := _key(target):
                yield key


def _covers(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", None)
    return first <= line <= (last or first)
