"""Ranks that a script's text names, such as 37 in ``if rank == 37:``. They do what no other rank does, so they are not
played: a fold gives each a process of its own. Nothing is executed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_NAMES = frozenset(("rank", "global_rank", "world_rank", "my_rank", "get_rank"))
_VARIABLE = "RANK"
"""Of the environment."""
MOST = 8
"""So many ranks of a text count. A script that names more of them does not mean single ranks."""


def named_ranks(text: str, world_size: int) -> frozenset[int]:
    """Empty if the text cannot be read, or names too many."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    compared = (node for node in ast.walk(tree) if isinstance(node, ast.Compare))
    found = {rank for node in compared for rank in _compared(node) if 0 <= rank < world_size}
    return frozenset(found if len(found) <= MOST else ())


def _compared(node: ast.Compare) -> Iterator[int]:
    """Numbers with which a comparison for equality or membership compares the rank."""
    sides = [node.left, *node.comparators]
    if all(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops) and any(map(_is_rank, sides)):
        for side in sides:
            yield from _numbers(side)


def _is_rank(side: ast.expr) -> bool:
    match side:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.lower() in _NAMES
        case ast.Call(func=ast.Name(id="int"), args=[inner]):
            return _is_rank(inner)
        case ast.Call(func=ast.Attribute(attr="get" | "getenv"), args=[ast.Constant(value=name), *_]):
            return name == _VARIABLE
        case ast.Call(func=function, args=[]):
            return _is_rank(function)
        case ast.Subscript(slice=ast.Constant(value=name)):
            return name == _VARIABLE
    return False


def _numbers(side: ast.expr) -> Iterator[int]:
    match side:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            yield number
        case ast.Constant(value=str(number)) if number.isdecimal():
            yield int(number)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            for part in parts:
                yield from _numbers(part)
