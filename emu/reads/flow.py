"""Finds what a function decides by an ordinary number that C code has made of one that nobody computed.

Such a number goes on unmarked: `int(loss)`, an item of an array of numpy's. The source of the function tells what
becomes of it, approximately: a name that has the value once has it everywhere in the function, and what is made of it
has it, too. Texts, printing and logging do not decide. Other functions are not looked at.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from .deciding_names import ASIDE, DECIDING, EXTREMES, FILLING, LOOK_UP
from .expressions import asks_if_finite, formats, is_sequence, name_called, name_of, neutral, no_number, walk
from .frames import Position

_CONTAINERS = (ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)


class Flow:
    """The way of the value through one function's body."""

    def __init__(self, body: Sequence[ast.AST], read: Position) -> None:
        """The value is what the expression at `read` yields, or what is written to the item there."""
        self._nodes = list(walk(body))
        self._read = read
        self._names: set[str] = set()
        """Names of variables and attributes (`.loss`) that have the value."""
        self._filled: set[str] = set()
        """Containers among them: whether one is empty says nothing of the value."""
        known = -1
        while known != len(self._names):
            known = len(self._names)
            for node in self._nodes:
                self._follow(node)

    # ---- where it goes ---------------------------------------------------------------------------------------------
    def _follow(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value)
            case ast.AugAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
                self._assign(target, node if self._is_read(node) else value)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self._assign(target, value)
            case ast.For(target=target, iter=iterable) | ast.comprehension(target=target, iter=iterable):
                if self._has(iterable) or self._is_read(node):
                    self._take(target, False)
            case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in FILLING and self._gets(node):
                self._take(owner, True)

    def _assign(self, target: ast.AST, value: ast.AST) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                self._assign(one, its)
        elif self._has(value) or self._is_read(target):
            self._take(target, isinstance(value, _CONTAINERS))

    def _take(self, target: ast.AST, container: bool) -> None:
        match target:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._take(part, False)
            case ast.Subscript(value=inner) | ast.Starred(value=inner):
                self._take(inner, True)
            case ast.Name() | ast.Attribute():
                name = name_of(target)
                if container and name not in self._names:
                    self._filled.add(name)
                elif not container:
                    self._filled.discard(name)
                self._names.add(name)

    def _has(self, node: ast.AST | None) -> bool:
        """Tells whether the expression's value follows from it."""
        if node is None or isinstance(node, (ast.JoinedStr, ast.Constant)) or formats(node):
            return False
        if self._is_read(node):
            return True
        match node:
            case ast.Name(id=name):
                return name in self._names
            case ast.Attribute(value=owner, attr=name):
                return f".{name}" in self._names or (name not in ASIDE and self._has(owner))
            case ast.Call(func=called) if neutral(called):
                return False
            case ast.Compare():
                return self._compares(node)
        return any(self._has(child) for child in ast.iter_child_nodes(node))

    def _is_read(self, node: ast.AST) -> bool:
        return isinstance(node, (ast.expr, ast.stmt)) and Position.of(node) == self._read

    def _gets(self, call: ast.Call) -> bool:
        """Tells whether it is one of the call's arguments."""
        return any(self._has(one) for one in (*call.args, *(keyword.value for keyword in call.keywords)))

    # ---- what becomes of it ----------------------------------------------------------------------------------------
    def returned(self) -> bool:
        """Tells whether the function's caller gets it."""
        return any(isinstance(node, (ast.Return, ast.Yield)) and self._has(node.value) for node in self._nodes)

    def decision(self) -> ast.expr | None:
        """Returns the first decision at the read or behind it, else the first of all: an earlier one is of a loop's
        next turn, or of another variable of the same name.
        """
        before = None
        for node in self.decisions():
            if node.lineno >= self._read.line:
                return node
            before = before or node
        return before

    def decisions(self) -> Iterator[ast.expr]:
        """Yields the expressions by which the program decides on it."""
        for node in self._nodes:
            match node:
                case ast.Compare() if self._compares(node):
                    yield node
                case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
                    if self._is_true(test):
                        yield test
                case ast.BoolOp(values=values) if any(self._is_true(value) for value in values[:-1]):
                    yield node
                case ast.UnaryOp(op=ast.Not(), operand=operand) if self._is_true(operand):
                    yield node
                case ast.Match(subject=subject) if self._has(subject):
                    yield subject
                case ast.Subscript(slice=place) if self._has(place) and isinstance(node.ctx, ast.Load):
                    yield node
                case ast.BinOp(op=ast.Mult(), left=left, right=right):
                    if any(is_sequence(one) and self._has(size) for one, size in ((left, right), (right, left))):
                        yield node
                case ast.BinOp(op=ast.Div() | ast.FloorDiv() | ast.Mod(), right=divisor) if not formats(node):
                    if self._has(divisor) and not isinstance(divisor, (ast.BinOp, ast.Subscript)):
                        yield node  # 0, as it reads, raises
                case ast.Call() if self._chooses(node):
                    yield node

    def _compares(self, node: ast.Compare) -> bool:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, (ast.In, ast.NotIn)):
                if self._has(left):
                    return True
            elif isinstance(operator, (ast.Is, ast.IsNot)) or no_number(left) or no_number(right):
                pass
            elif (self._has(left) or self._has(right)) and not asks_if_finite(left, right):
                return True
            left = right
        return False

    def _is_true(self, test: ast.expr) -> bool:
        """Tells whether the value itself is a condition. Comparisons in it are found by themselves."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._is_true(operand)
            case ast.BoolOp(values=values):
                return any(self._is_true(value) for value in values)
            case ast.Compare():
                return False
            case ast.Name() | ast.Attribute() if name_of(test) in self._filled:
                return False
        return self._has(test)

    def _chooses(self, node: ast.Call) -> bool:
        name = name_called(node.func)
        of = node.func.value if isinstance(node.func, ast.Attribute) else None
        if of is not None and name in LOOK_UP:
            return bool(node.args) and self._has(node.args[0])
        if name not in DECIDING and not (of is None and name in EXTREMES):
            return False  # `x.max()` and `np.max(x)` are numbers like others
        bounded = name in EXTREMES and len(node.args) > 1 and any(isinstance(a, ast.Constant) for a in node.args)
        return (self._is_read(node) or self._gets(node) or self._has(of)) and not bounded  # min(loss, 20) limits it
