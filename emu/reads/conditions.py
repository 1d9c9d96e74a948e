"""The value that a condition of the program has now, as far as it can be told without running anything of the program.

Known are numbers, texts, None and the lengths of containers in variables and attributes, what the program has read at a
place, and what arithmetic, comparisons and a few functions of Python's make of them.
"""

from __future__ import annotations

import ast
import itertools
import math
import numbers
import operator
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..interpreter.hook_library import Hook
from .frames import Position, Variables
from .marked import plain

_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
_ENDLESS = (itertools.count, itertools.cycle, itertools.repeat)
_PURE = frozenset(
    map(id, (abs, bool, float, int, len, max, min, round, *(f for f in vars(math).values() if callable(f))))
)
"""Identities of these functions: the hash of those that carriers replace changes after this is imported."""
_BINARY: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_SAME_NUMBER = frozenset(("cpu", "detach", "double", "float", "item", "numpy", "tolist"))
"""Names of methods of a tensor or array that has one element: what they return is the same number."""
_COMPARISONS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


class Unknown(Exception):
    """Raised if the value cannot be told."""


class _Length(int):
    """The length of a container: as a truth value and in `len`, it stands for the container."""


def _attribute(owner: Any, name: str) -> Any:
    """Returns the attribute that an object has itself, or its class; Unknown for what is computed, as properties and
    methods are.
    """
    own = getattr(owner, "__dict__", {})
    if isinstance(own, dict) and name in own:
        return own[name]
    for cls in type(owner).__mro__:
        if name in cls.__dict__:
            found = cls.__dict__[name]
            return Unknown if hasattr(found, "__get__") else found
    return Unknown


class Evaluation:
    """Evaluates expressions of one frame. `leaves` are the values of variables and reads that were used."""

    def __init__(self, variables: Variables, reads: Mapping[Position, Any], hook: Hook) -> None:
        self._variables = variables
        self._reads = reads
        self._hook = hook
        self.leaves: list[Any] = []

    def of(self, node: ast.expr) -> Any:
        """Returns the expression's value. Raises Unknown."""
        read = Position.of(node)
        if read in self._reads:
            return self._leaf(self._reads[read])
        try:
            return self._of(node)
        except (ArithmeticError, TypeError, ValueError, RecursionError):
            raise Unknown from None

    def _of(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name() | ast.Attribute():
                return self._leaf(self._plain(self.thing(node)))
            case ast.UnaryOp(op=ast.Not()):
                return not self.of(node.operand)
            case ast.UnaryOp(op=ast.USub()):
                return -self.of(node.operand)
            case ast.BinOp(op=op) if type(op) in _BINARY:
                return _BINARY[type(op)](self.of(node.left), self.of(node.right))
            case ast.BoolOp(op=op, values=values):
                return self._some(values, isinstance(op, ast.Or))
            case ast.Compare(left=first, ops=ops, comparators=others) if all(type(op) in _COMPARISONS for op in ops):
                values = [self.of(value) for value in (first, *others)]
                pairs = zip(ops, itertools.pairwise(values), strict=True)
                return all(_COMPARISONS[type(op)](*pair) for op, pair in pairs)
            case ast.Call(func=ast.Attribute(value=owner, attr=name), args=[], keywords=[]) if name in _SAME_NUMBER:
                value = self.of(owner)
                if isinstance(value, numbers.Real):
                    return value
            case ast.Call(func=function, args=args, keywords=[]):
                called = self.thing(function)
                if id(called) in _PURE:
                    return called(*map(self.of, args)) if called is not len else self._length(args)
        raise Unknown

    def _length(self, args: Sequence[ast.expr]) -> int:
        value = self.of(args[0])
        if not isinstance(value, _Length):
            raise Unknown
        return int(value)

    def _some(self, values: Sequence[ast.expr], wanted: bool) -> Any:
        """Evaluates `or` and `and`: the first value that is as `wanted` decides, also behind one that is not known."""
        unknown, value = False, None
        for one in values:
            try:
                value = self.of(one)
            except Unknown:
                unknown = True
                continue
            if bool(value) == wanted:
                return value
        if unknown:
            raise Unknown
        return value

    def thing(self, node: ast.expr) -> Any:
        """Returns the object that a variable, or an attribute that is no property, has. Raises Unknown."""
        match node:
            case ast.Name(id=name):
                found = self._variables.get(name, Unknown)
            case ast.Attribute(value=owner, attr=name):
                found = _attribute(self.thing(owner), name)
            case _:
                raise Unknown
        if found is Unknown:
            raise Unknown
        return found

    def _plain(self, value: Any) -> Any:
        value = plain(value)
        if value is None or isinstance(value, (bool, int, float, str, bytes)):
            return value
        if isinstance(value, _CONTAINERS):
            return _Length(len(value))
        if isinstance(value, numbers.Real):
            return float(value)
        module = type(value).__module__.partition(".")[0]
        if module in ("numpy", "torch") and str(getattr(value, "device", "cpu")) == "cpu":
            self._hook.uncounted(1)
            try:
                return value.item()  # raises ValueError or RuntimeError unless it has one element
            except (RuntimeError, AttributeError):
                raise Unknown from None
            finally:
                self._hook.uncounted(-1)
        raise Unknown

    def _leaf(self, value: Any) -> Any:
        self.leaves.append(value)
        return value

    def endless(self, node: ast.expr) -> bool:
        """Tells whether the expression names, or makes, an iterator of itertools that never ends."""
        try:
            if isinstance(node, ast.Call):
                made = self.thing(node.func)
                return any(made is one for one in _ENDLESS) and (
                    made is not itertools.repeat or len(node.args) + len(node.keywords) == 1
                )
            found = self.thing(node)
        except Unknown:
            return False
        return isinstance(found, (itertools.count, itertools.cycle)) or (
            isinstance(found, itertools.repeat) and not hasattr(found, "__len__")
        )

    def takes_from_iterator(self, node: ast.AST) -> bool:
        """Tells whether it is `next(iterator)`, which ends the loop when the iterator ends."""
        match node:
            case ast.Call(func=ast.Name(id="next"), args=[iterator], keywords=[]):
                return not self.endless(iterator)
        return False
