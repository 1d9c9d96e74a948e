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
from typing import NamedTuple

from .expressions import name_called, walk

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


def loops_at(body: Statements, line: int) -> list[Loop]:
    """Returns the loops of a function's body that the line is in, from the innermost outwards."""
    return [loop for loop in reversed([*_loops(body)]) if loop.first <= line <= loop.last]


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
            case ast.Expr(value=ast.Call(func=called)) if name_called(called) in _ENDING_CALLS:
                yield under


def _never_falls_through(body: Statements) -> bool:
    last = body[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and _never_falls_through(last.body) and _never_falls_through(last.orelse)
    return isinstance(last, _LEAVES)
