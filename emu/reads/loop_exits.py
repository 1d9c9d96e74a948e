"""The loops of a source file: where each begins and ends, and under which conditions the program leaves it.

An exit is a list of conditions, all of which must hold for the program to leave the loop there. A `while` is left if
its test is false; every loop is left at `break`, `return`, `raise` and calls that end the program, under the conditions
of the `if` statements around them. An empty list means that what leads there is not known: an exception, an iterator
that ends, a generator's caller.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import NamedTuple

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.Lambda, ast.ClassDef)
_LEAVES = (ast.Break, ast.Continue, ast.Return, ast.Raise)
_ENDING_CALLS = frozenset(("exit", "_exit", "quit", "abort"))


class Condition(NamedTuple):
    """A condition: the expression is true, or if not `holds` false."""

    expression: ast.expr
    holds: bool


Exit = tuple[Condition, ...]
Statements = Sequence[ast.stmt]


@dataclass(frozen=True, slots=True)
class Loop:
    node: ast.While | ast.For
    exits: tuple[Exit, ...]
    first: int
    """The first line of the loop; `last` is its last one."""
    last: int
    head: int
    """The line that each turn begins with."""
    inner: tuple[int, int]
    """The lines from which the head is reached within a turn."""

    @property
    def iterable(self) -> ast.expr | None:
        """The expression that a `for` goes through; None for a `while`."""
        return self.node.iter if isinstance(self.node, ast.For) else None


class SourceFile:
    """A file of the program. Raises OSError, SyntaxError or ValueError if it cannot be read."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self._tree = ast.parse(file.read())
        self._functions = {
            (node.name, min([node.lineno, *(one.lineno for one in node.decorator_list)])): node
            for node in ast.walk(self._tree)
            if isinstance(node, _FUNCTIONS)
        }
        self._loops: dict[CodeType, tuple[Loop, ...]] = {}

    @property
    def module(self) -> Statements:
        return self._tree.body

    def functions(self) -> Iterator[Statements]:
        """Yields the bodies of all functions."""
        for function in self._functions.values():
            yield function.body

    def around(self, code: CodeType) -> Statements:
        """Returns the body of the outermost function that the code lies in, or of the module."""
        last = max((line for _, _, line in code.co_lines() if line), default=code.co_firstlineno)
        for function in ast.walk(self._tree):
            if isinstance(function, _FUNCTIONS) and function.lineno <= code.co_firstlineno:
                first = min([function.lineno, *(one.lineno for one in function.decorator_list)])
                if (first, function.name) != (code.co_firstlineno, code.co_name) and last <= (function.end_lineno or 0):
                    return function.body
        return self._tree.body

    def body(self, code: CodeType) -> Statements:
        """Returns the body of the function, or of the module; empty for other code (a lambda function, a
        comprehension).
        """
        if code.co_name == "<module>":
            return self._tree.body
        function = self._functions.get((code.co_name, code.co_firstlineno))
        return function.body if function is not None else ()

    def loops_at(self, code: CodeType, line: int) -> list[Loop]:
        """Returns the loops that the line of this code is in, from the innermost outwards."""
        loops = self._loops.get(code)
        if loops is None:
            loops = self._loops[code] = tuple(_loops(self.body(code)))
        return [loop for loop in reversed(loops) if loop.first <= line <= loop.last]


def conjuncts(expression: ast.expr, holds: bool) -> Iterator[Condition]:
    """Yields conditions that all hold if the expression is true, or false."""
    match expression:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from conjuncts(operand, not holds)
        case ast.BoolOp(op=op, values=values) if isinstance(op, ast.And) == holds:
            for value in values:
                yield from conjuncts(value, holds)
        case _:
            yield Condition(expression, holds)


def walk(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Yields these nodes and all below them, but not the bodies of functions and classes."""
    for node in nodes:
        yield node
        if not isinstance(node, _SCOPES):
            yield from walk(list(ast.iter_child_nodes(node)))


def _loops(body: Statements) -> Iterator[Loop]:
    """Yields all loops of a body, outer ones before those that they contain."""
    for node in walk(body):
        if isinstance(node, (ast.While, ast.For)):
            last = node.body[-1].end_lineno or node.lineno
            yield Loop(node, tuple(_exits(node)), node.lineno, last, _head(node), _inner(node))


def _is_endless(node: ast.While | ast.For) -> bool:
    return isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and bool(node.test.value)


def _head(node: ast.While | ast.For) -> int:
    """Returns the line that each turn begins with: `while True` has no code of its own."""
    if isinstance(node, ast.For):
        return node.lineno
    return node.body[0].lineno if _is_endless(node) else node.test.lineno


def _inner(node: ast.While | ast.For) -> tuple[int, int]:
    begins = node.body[0]
    if _is_endless(node) and isinstance(begins, (ast.For, ast.While, ast.With)):
        return begins.body[0].lineno, begins.body[-1].end_lineno or begins.lineno
    return 0, -1


def _exits(loop: ast.While | ast.For) -> Iterator[Exit]:
    if isinstance(loop, ast.While) and not _is_endless(loop):
        yield tuple(conjuncts(loop.test, False))
    yield from _leaving(loop.body, (), own=True)
    for node in walk(loop.body):
        if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith)):
            yield ()


def _leaving(body: Statements, under: Exit, *, own: bool) -> Iterator[Exit]:
    """Yields the exits in these statements, which are reached under the conditions. `own`: a `break` here leaves the
    loop.
    """
    for statement in body:
        match statement:
            case ast.Break() if own:
                yield under
            case ast.Return() | ast.Raise():
                yield under
            case ast.If(test=test):
                true, false = (*under, *conjuncts(test, True)), (*under, *conjuncts(test, False))
                yield from _leaving(statement.body, true, own=own)
                yield from _leaving(statement.orelse, false, own=own)
                # What follows is reached only if the branch that leaves was not taken.
                if _never_falls_through(statement.body):
                    under = false
                elif statement.orelse and _never_falls_through(statement.orelse):
                    under = true
            case ast.For() | ast.While():
                yield from _leaving(statement.body, under, own=False)
                yield from _leaving(statement.orelse, under, own=own)
            case ast.With():
                yield from _leaving(statement.body, under, own=own)
            case ast.Try() | ast.TryStar():
                yield from _leaving(statement.body, under, own=own)
                # An exception is no condition that could be looked at: such an exit may be taken at any time.
                for handler in statement.handlers:
                    if any(True for _ in _leaving(handler.body, under, own=own)):
                        yield ()
                for rest in (statement.orelse, statement.finalbody):
                    yield from _leaving(rest, under, own=own)
            case ast.Match():
                for case in statement.cases:
                    if any(True for _ in _leaving(case.body, under, own=own)):
                        yield ()
            case ast.Expr(value=ast.Call(func=called)) if _name(called) in _ENDING_CALLS:
                yield under


def _never_falls_through(body: Statements) -> bool:
    last = body[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and _never_falls_through(last.body) and _never_falls_through(last.orelse)
    return isinstance(last, _LEAVES)


def _name(called: ast.expr) -> str:
    """Returns the last part of a dotted name."""
    match called:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
