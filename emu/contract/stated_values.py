"""The values of `--value LINE=EXPR`: what the program reads at a line where the value is not computed.

The command line checks them, and the ranks evaluate them. An expression has numbers, the operators of Python's
arithmetic, comparisons, conditions and the names below, and nothing else: it can call no other function and has no side
effects.
"""

from __future__ import annotations

import ast
import hashlib
import math
import operator
import posixpath
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

FORMS = "FILE:LINE=EXPRESSION, LINE=EXPRESSION for a line of the script, or either with =MODULE:FUNCTION"
COUNTS = ("n", "step", "rank")
"""Names that an expression may use: reads at the line before this one, steps that have ended, and the rank."""
MOST_CHARACTERS = 1000
_MOST_BITS = 4096
"""Most bits of a whole number that a power gives. Larger numbers are computed as floating-point numbers."""
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_LINE = re.compile(r"(?:(?P<file>.+):)?(?P<line>[0-9]{1,9})", re.DOTALL)

Number = bool | int | float
_CONSTANTS: Mapping[str, Number] = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan}
_FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "abs": abs,
    "bool": bool,
    "ceil": math.ceil,
    "cos": math.cos,
    "exp": math.exp,
    "float": float,
    "floor": math.floor,
    "int": int,
    "log": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "max": max,
    "min": min,
    "round": round,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "tanh": math.tanh,
}
RANDOM = "random"
"""`random()`: a number from 0 to 1 that depends on the line and n alone, so it is the same on all ranks."""
_BINARY: Mapping[type[ast.AST], Callable[[Any, Any], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: Mapping[type[ast.AST], Callable[[Any], Number]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
_COMPARISONS: Mapping[type[ast.AST], Callable[[Any, Any], Number]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class ValueProblem(ValueError):
    """A stated value that cannot be understood or evaluated. The message says why."""


@dataclass(frozen=True, slots=True)
class StatedValue:
    """The value that one `--value` states for a line."""

    text: str
    """The option's value as the user wrote it."""
    file: str
    """The end of the file's path, in whole components; "" for the script, see ``for_script``."""
    line: int
    expression: str
    """An expression, or `module:function`."""

    def for_script(self, path: str) -> StatedValue:
        """Returns this value with the script's path where no file was given."""
        return self if self.file else replace(self, file=path)

    @property
    def resolved(self) -> str:
        """Returns a text of which ``parse`` makes the same value."""
        return f"{self.file}:{self.line}={self.expression}"

    @property
    def is_function(self) -> bool:
        return _FUNCTION.fullmatch(self.expression) is not None

    def evaluate(self, n: int, step: int, rank: int) -> Number:
        """Evaluates the expression. Raises ValueProblem. Not for functions."""
        try:
            value = _Evaluation({"n": n, "step": step, "rank": rank}, f"{self.file}:{self.line}:{n}").of(
                _tree(self.expression)
            )
        except (ArithmeticError, ValueError, TypeError, RecursionError) as error:
            if isinstance(error, ValueProblem):
                raise
            reason = error.args[-1] if error.args else type(error).__name__
            raise ValueProblem(f"{reason} at n={n}, step={step}, rank={rank}") from None
        return check_number(value)


def parse(text: str) -> StatedValue:
    """Reads the option's value. Raises ValueProblem."""
    place, equals, expression = text.partition("=")
    found, expression = _LINE.fullmatch(place.strip()), expression.strip()
    if not equals or not expression or found is None:
        raise ValueProblem(f"expected {FORMS}")
    if int(found["line"]) < 1:
        raise ValueProblem("lines are numbered from 1")
    stated = StatedValue(text, (found["file"] or "").strip(), int(found["line"]), expression)
    if not stated.is_function:
        _check(_tree(expression), COUNTS)
        stated.evaluate(n=0, step=0, rank=0)
    return stated


def check_number(value: object) -> Number:
    """Returns the value, a number. Raises ValueProblem if it is none."""
    if not isinstance(value, (bool, int, float)):
        raise ValueProblem(f"{value!r:.40} is not a number")
    return value


def evaluate(expression: str, names: Mapping[str, Number]) -> Number:
    """Evaluates an expression with other names than those of a stated value. Raises ValueProblem."""
    tree = _tree(expression)
    _check(tree, names)
    try:
        return check_number(_Evaluation(names, expression).of(tree))
    except ValueProblem:
        raise
    except (ArithmeticError, ValueError, TypeError, RecursionError) as error:
        raise ValueProblem(str(error) or type(error).__name__) from None


def fits(stated_file: str, path: str) -> bool:
    """Tells whether the stated file is this one. `path` is absolute."""
    stated = posixpath.normpath(stated_file)
    return path == stated or path.endswith(f"/{stated}")


def _tree(expression: str) -> ast.expr:
    if len(expression) > MOST_CHARACTERS:
        raise ValueProblem(f"longer than {MOST_CHARACTERS} characters")
    try:
        return ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ValueProblem(f"not an expression: {reason}") from None


def _check(node: ast.expr, names: Collection[str]) -> None:
    """Checks an expression. Raises ValueProblem if a part of it is not allowed."""
    match node:
        case ast.Constant(value=value) if type(value) in (bool, int, float):
            return
        case ast.Name(id=name) if name in names or name in _CONSTANTS:
            return
        case ast.Name(id=name):
            known = ", ".join((*names, *_CONSTANTS, *_FUNCTIONS, RANDOM))
            raise ValueProblem(f"unknown name {name!r}; known ones: {known}")
        case ast.BinOp(op=op) if type(op) in _BINARY or isinstance(op, ast.Pow):
            _check(node.left, names)
            _check(node.right, names)
        case ast.UnaryOp(op=op) if type(op) in _UNARY:
            _check(node.operand, names)
        case ast.BoolOp():
            for part in node.values:
                _check(part, names)
        case ast.Compare(ops=ops) if all(type(op) in _COMPARISONS for op in ops):
            for part in (node.left, *node.comparators):
                _check(part, names)
        case ast.IfExp():
            for part in (node.test, node.body, node.orelse):
                _check(part, names)
        case ast.Call(func=ast.Name(id=name), args=[], keywords=[]) if name == RANDOM:
            return
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS:
            for part in node.args:
                _check(part, names)
        case _:
            raise ValueProblem(f"{ast.unparse(node)[:60]!r} is not allowed in an expression")


class _Evaluation:
    """The evaluation of an expression that `_check` has accepted."""

    def __init__(self, names: Mapping[str, Number], seed: str) -> None:
        self._names = {**_CONSTANTS, **names}
        self._seed = seed

    def of(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._names[name]
            case ast.BinOp(op=ast.Pow()):
                return _power(self.of(node.left), self.of(node.right))
            case ast.BinOp(op=op):
                return _BINARY[type(op)](self.of(node.left), self.of(node.right))
            case ast.UnaryOp(op=op):
                return _UNARY[type(op)](self.of(node.operand))
            case ast.BoolOp(op=op, values=values):
                last: Any = False
                for one in values:
                    last = self.of(one)
                    if bool(last) == isinstance(op, ast.Or):
                        break
                return last
            case ast.Compare():
                left = self.of(node.left)
                for comparison, other in zip(node.ops, node.comparators, strict=True):
                    right = self.of(other)
                    if not _COMPARISONS[type(comparison)](left, right):
                        return False
                    left = right
                return True
            case ast.IfExp():
                return self.of(node.body if self.of(node.test) else node.orelse)
            case ast.Call(func=ast.Name(id=name), args=args):
                if name == RANDOM:
                    return self._random()
                return _FUNCTIONS[name](*map(self.of, args))
        raise AssertionError("an expression that was not checked")

    def _random(self) -> float:
        """Returns a number from 0 to 1 that the line and n decide, alike on all ranks."""
        digest = hashlib.blake2b(self._seed.encode(errors="replace"), digest_size=8).digest()
        return int.from_bytes(digest) / 2**64


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > _MOST_BITS:
        base = float(base)
    return check_number(base**exponent)  # a negative number's root is complex
