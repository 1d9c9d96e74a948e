"""Recognises expressions, as far as their form tells: texts, sequences, checks, calls that make neither of a value."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from .deciding_names import LOGARITHMS, NEUTRAL, OF_MATHEMATICS

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def walk(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Yields these nodes and all below them, but not the bodies of functions and classes that are defined there."""
    for node in nodes:
        if not isinstance(node, _DEFINITIONS):
            yield node
            yield from walk(list(ast.iter_child_nodes(node)))


def name_of(node: ast.AST) -> str:
    """Returns the name under which a variable or an attribute is among the names; "" for other expressions."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return f".{name}"
    return ""


def no_number(node: ast.expr) -> bool:
    """Recognises a text, an empty container and None: what is compared with it is no number, or is not decided by its
    value.
    """
    match node:
        case ast.Constant(value=value):
            return not isinstance(value, (int, float))
        case ast.JoinedStr():
            return True
        case ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Dict(keys=[]):
            return True
    return False


def asks_if_finite(left: ast.expr, right: ast.expr) -> bool:
    """Recognises `norm == float("inf")`, `loss < math.inf`, `norm != norm`: values that nobody computed are taken as
    finite.
    """
    return is_infinite(left) or is_infinite(right) or ast.dump(left) == ast.dump(right)


def is_infinite(node: ast.expr) -> bool:
    """Recognises `float("inf")`, `-math.inf`, `np.nan`."""
    match node:
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return is_infinite(operand)
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str(text))]):
            return text.strip().lstrip("+-").lower() in ("inf", "infinity", "nan")
        case ast.Attribute(value=owner, attr="inf" | "nan"):
            return name_of(owner) in OF_MATHEMATICS
    return False


def is_sequence(node: ast.expr) -> bool:
    """Recognises a list, a tuple or a text as it is written: what multiplies it says how long the result is."""
    return isinstance(node, (ast.List, ast.Tuple)) or (
        isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    )


def neutral(called: ast.expr) -> bool:
    mathematics = isinstance(called, ast.Attribute) and name_of(called.value) in OF_MATHEMATICS
    return name_called(called) in NEUTRAL and not (mathematics and name_called(called) in LOGARITHMS)


def name_called(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def formats(node: ast.AST) -> bool:
    """Recognises `"loss %.4f" % loss` and `text % (step, loss)`: a text, which does not decide."""
    match node:
        case ast.BinOp(left=ast.Constant(value=str() | bytes()) | ast.JoinedStr(), op=ast.Mod()):
            return True
        case ast.BinOp(op=ast.Mod(), right=ast.Tuple() | ast.Dict()):
            return True
    return False
