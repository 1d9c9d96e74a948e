"""Tells what the statement around a comparison does with its result, as far as its text tells.

A comparison is no decision worth telling if both of its branches only print or log, or keep one of the compared numbers
in a variable that is only printed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from .expressions import is_infinite, name_called, name_of, neutral
from .frames import Position

_WRITING = frozenset(
    ("abs", "float", "format", "int", "join", "ljust", "lower", "max", "min", "range", "rjust", "round", "sum", "upper")
)
"""Names of functions and methods that make a text, or a number, of numbers."""
_PARTS = ("body", "orelse", "finalbody", "handlers", "cases")


def only_tells(body: Sequence[ast.stmt], position: Position) -> bool:
    """Tells whether the program only tells what it finds by the expression there."""
    match _statement_at(body, position):
        case ast.If() as statement:
            kept: set[str] = set()
            return _branches_tell(statement, kept) and not _uses(body, kept, statement)
        case ast.Expr() as statement:
            return _tells(statement)
    return False


def only_checks(body: Sequence[ast.stmt], position: Position) -> bool:
    """Tells whether it is `if EXPRESSION: raise ...`, a check of arguments."""
    statement = _statement_at(body, position)
    return (
        isinstance(statement, ast.If) and not statement.orelse and all(isinstance(s, ast.Raise) for s in statement.body)
    )


def takes_as_infinite(handler: ast.ExceptHandler) -> bool:
    """Tells whether the handler only says, or sets a variable to, a constant or infinity, as for the perplexity of a
    large loss.
    """
    return all(
        _tells(one)
        or (
            isinstance(one, ast.Assign)
            and all(map(name_of, one.targets))
            and (isinstance(one.value, ast.Constant) or is_infinite(one.value))
        )
        for one in handler.body
    )


def _statement_at(body: Sequence[ast.AST], position: Position) -> ast.AST | None:
    """Returns the innermost statement that has the expression in itself, not in its body."""
    for node in body:
        if not _covers(node, position):
            continue
        inner = [part for name in _PARTS for part in getattr(node, name, ())]
        return _statement_at(inner, position) or node
    return None


def _covers(node: ast.AST, position: Position) -> bool:
    if not isinstance(node, (ast.stmt, ast.ExceptHandler)):
        return False
    first = node.lineno, node.col_offset
    last = node.end_lineno or 0, node.end_col_offset or 0
    return first <= (position.line, position.column) and (position.last_line, position.last_column) <= last


def _branches_tell(statement: ast.If, kept: set[str]) -> bool:
    """Tells whether both branches only tell. `kept` gets the variables that they assign."""
    if not _calls_nothing(statement.test):
        return False
    compared = [
        ast.dump(one)
        for node in ast.walk(statement.test)
        if isinstance(node, ast.Compare)
        for one in (node.left, *node.comparators)
    ]
    for one in (*statement.body, *statement.orelse):
        match one:
            case ast.If():
                if not _branches_tell(one, kept):
                    return False
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name() | ast.Attribute() as value):
                if ast.dump(value) not in compared:
                    return False
                kept.add(name)
            case _:
                if not _tells(one):
                    return False
    return True


def _tells(statement: ast.AST) -> bool:
    match statement:
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=called) as call):
            return neutral(called) and all(map(_calls_nothing, _arguments(call)))
    return False


def _uses(nodes: Iterable[ast.AST], names: set[str], but: ast.stmt) -> bool:
    """Tells whether one of these variables is used there, other than in this statement and where it is only told."""
    for node in nodes:
        match node:
            case ast.Global(names=declared) | ast.Nonlocal(names=declared):
                if names.intersection(declared):
                    return True
            case ast.Name(id=name, ctx=ast.Load()) if name in names:
                return True
        if node is not but and not _tells(node) and _uses(ast.iter_child_nodes(node), names, but):
            return True
    return False


def _arguments(call: ast.Call) -> Iterator[ast.expr]:
    yield from call.args
    yield from (one.value for one in call.keywords)


def _calls_nothing(node: ast.expr) -> bool:
    """Tells whether the expression calls nothing that may be work of the GPU's."""
    return not any(
        isinstance(one, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr))
        or (isinstance(one, ast.Call) and name_called(one.func) not in _WRITING and not neutral(one.func))
        for one in ast.walk(node)
    )
