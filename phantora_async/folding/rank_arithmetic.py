"""Finds out whether a script's text computes with the rank, as in ``rank % 2``. Then it may give every rank another
task. Nothing is executed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from phantora_async.folding.script_text import last_name

_NAMES = frozenset(("rank", "global_rank", "world_rank", "my_rank", "get_rank"))
_VARIABLE = "RANK"
"""The environment variable with the rank."""
_DIVIDING = ast.Mod | ast.FloorDiv | ast.Div | ast.BitAnd | ast.RShift
_ORDER = ast.Lt | ast.LtE | ast.Gt | ast.GtE


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


def tells_ranks_apart(text: str) -> bool:
    """Returns true if the text divides ranks, compares them by their order, or looks up something for each. Functions
    that are given the rank are not followed. Returns false if the text cannot be read.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    nodes = list(ast.walk(tree))
    others = {
        name for node in nodes if isinstance(node, ast.Assign) and _of_a_rank(node.value) for name in _bound(node)
    }

    def is_rank(side: ast.expr) -> bool:
        return _of_a_rank(side) or (isinstance(side, ast.Name) and side.id in others)

    for node in nodes:
        match node:
            case ast.BinOp(left=left, op=ast.Mod(), right=ast.Call(func=function)) if (
                last_name(function) == "device_count"
            ):
                continue  # the GPU of the rank
            case ast.BinOp(left=left, op=op) if isinstance(op, _DIVIDING) and is_rank(left):
                return True
            case ast.Compare(left=left, ops=ops, comparators=right) if any(isinstance(op, _ORDER) for op in ops):
                if any(map(is_rank, (left, *right))):
                    return True
            case ast.Subscript(slice=index) if is_rank(index):
                return True
    return False


def _of_a_rank(side: ast.expr) -> bool:
    """Returns true if the expression is a rank, or the number of one within its server."""
    match side:
        case ast.Name(id=name) | ast.Attribute(attr=name) if name.lower() in ("local_rank", "get_local_rank"):
            return True
        case ast.Call(func=ast.Name(id="int"), args=[inner]):
            return _of_a_rank(inner)
        case ast.Call(func=ast.Attribute(attr="get" | "getenv"), args=[ast.Constant(value="LOCAL_RANK"), *_]):
            return True
        case ast.Subscript(slice=ast.Constant(value="LOCAL_RANK")):
            return True
        case ast.Call(func=function, args=[]):
            return _of_a_rank(function)
    return _is_rank(side)


def _bound(node: ast.Assign) -> Iterator[str]:
    yield from (target.id for target in node.targets if isinstance(target, ast.Name))
