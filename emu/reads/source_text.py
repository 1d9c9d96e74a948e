"""The program's source: the expression that a frame runs, and the function around it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from types import CodeType

from .frames import Position

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@functools.lru_cache(maxsize=64)
def _lines(path: str) -> tuple[bytes, ...]:
    try:
        with open(path, "rb") as file:
            return tuple(file.read().split(b"\n"))
    except OSError:
        return ()


def expression_at(path: str, position: Position) -> ast.expr | None:
    """Returns the expression that is written there; None if it is not an expression, or cannot be read."""
    lines = _lines(path)[position.line - 1 : position.last_line] if position.line else ()
    if not lines:
        return None
    parts = [*lines[:-1], lines[-1][: position.last_column]]
    parts[0] = parts[0][position.column :]
    try:
        return ast.parse(b"(" + b"\n".join(parts) + b")", mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None


def body_around(path: str, code: CodeType) -> Sequence[ast.stmt]:
    """Returns the statements of the innermost function that the code is, or is a part of; else the file's."""
    tree = tree_of(path)
    first = code.co_firstlineno
    around: Sequence[ast.stmt] = tree.body
    for node in ast.walk(tree) if code.co_name != "<module>" else ():  # outer ones come first
        if isinstance(node, _FUNCTIONS) and _begin(node) <= first <= (node.end_lineno or 0):
            around = node.body
    return around


def body_of(path: str, code: CodeType) -> Sequence[ast.stmt]:
    """Returns the statements of the function, or of the file; none for other code: a lambda function, a
    comprehension.
    """
    if code.co_name == "<module>":
        return tree_of(path).body
    for node in ast.walk(tree_of(path)):
        if isinstance(node, _FUNCTIONS) and (node.name, _begin(node)) == (code.co_name, code.co_firstlineno):
            return node.body
    return ()


def _begin(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Returns the first line of a function's code, its decorators' included."""
    return min([function.lineno, *(one.lineno for one in function.decorator_list)])


@functools.lru_cache(maxsize=16)
def tree_of(path: str) -> ast.Module:
    """Returns a file's source; an empty module if it cannot be read."""
    try:
        return ast.parse(b"\n".join(_lines(path)))
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])
