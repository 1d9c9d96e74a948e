"""What expressions are, as far as their form tells: texts, containers, calls that make neither of a value."""

from __future__ import annotations

import ast

from .deciding_names import DICTIONARIES, LOGARITHMS, NEUTRAL, OF_DICTIONARIES, OF_MATHEMATICS
from .scopes import name_of


def dictionary(node: ast.AST) -> str:
    """A name that this says to be a dictionary's."""
    match node:
        case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=value):
            made = isinstance(value, ast.Call) and name_called(value.func) in DICTIONARIES
            return name_of(target) if made or isinstance(value, (ast.Dict, ast.DictComp)) else ""
        case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in OF_DICTIONARIES:
            return name_of(owner)
        case ast.Subscript(value=owner, slice=ast.JoinedStr() | ast.Constant(value=str())):
            return name_of(owner)
    return ""


def no_number(node: ast.expr) -> bool:
    """A text, an empty container, None: what is compared with it is no number, or is not decided by its value."""
    match node:
        case ast.Constant(value=value):
            return not isinstance(value, (int, float))
        case ast.JoinedStr():
            return True
        case ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Dict(keys=[]):
            return True
    return False


def asks_if_finite(left: ast.expr, right: ast.expr) -> bool:
    """`norm == float("inf")`, `loss < math.inf`, `norm != norm`: values that nobody computed are taken as finite."""
    return _no_finite(left) or _no_finite(right) or ast.dump(left) == ast.dump(right)


def _no_finite(node: ast.expr) -> bool:
    match node:
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _no_finite(operand)
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str(text))]):
            return text.strip().lstrip("+-").lower() in ("inf", "infinity", "nan")
        case ast.Attribute(value=owner, attr="inf" | "nan"):
            return name_of(owner) in OF_MATHEMATICS
    return False


def is_sequence(node: ast.expr) -> bool:
    """A list, a tuple or a text as it is written: what multiplies it says how long the result is."""
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
    """`"loss %.4f" % loss` and `text % (step, loss)`: a text, which does not decide."""
    match node:
        case ast.BinOp(left=ast.Constant(value=str() | bytes()) | ast.JoinedStr(), op=ast.Mod()):
            return True
        case ast.BinOp(op=ast.Mod(), right=ast.Tuple() | ast.Dict()):
            return True
    return False
