"""Tells what the statement around a comparison does with its result, as far as its text tells.

A comparison is no decision worth telling if both of its branches only print or log, keep numbers in variables that are
only printed, or set learning rates that nobody looks at: kernels and shapes do not follow from these.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence

from .expressions import is_infinite, name_called, name_of, neutral
from .frames import Position

_WRITING = frozenset(
    ("abs", "float", "format", "int", "join", "ljust", "lower", "max", "min", "range", "rjust", "round", "sum", "upper")
)
"""Names of functions and methods that make a text, or a number, of numbers."""
_ASKING_RATES = ("get_last_lr",)
RATE = "[lr]"
"""Stands among variables for the learning rates of an optimizer."""
_PLAIN = (ast.Constant, ast.Name, ast.Attribute)
_PARTS = ("body", "orelse", "finalbody", "handlers", "cases")


def only_tells(body: Sequence[ast.stmt], position: Position, rates_are_read: Callable[[], object]) -> bool:
    """Tells whether no work follows from what the program finds by the expression there. `rates_are_read` says whether
    the program reads learning rates, other than to tell them.
    """
    match _statement_at(body, position):
        case ast.If() as statement:
            kept: set[str] = set()
            if not _branches_tell(statement, kept) or _uses(body, kept, statement):
                return False
            return RATE not in kept or not rates_are_read()
        case ast.Expr() as statement:
            return _tells(statement)
    return False


def takes_as_infinite(handler: ast.ExceptHandler) -> bool:
    """Tells whether the handler only says, or sets a variable to, a constant or infinity, as for the perplexity of a
    large loss.
    """
    return all(
        _tells(one)
        or (
            isinstance(one, ast.Assign)
            and all(map(name_of, one.targets))
            and (isinstance(one.value, ast.Constant) or is_infinite(one.value))
        )
        for one in handler.body
    )


def _statement_at(body: Sequence[ast.AST], position: Position) -> ast.AST | None:
    """Returns the innermost statement that has the expression in itself, not in its body."""
    for node in body:
        if not _covers(node, position):
            continue
        inner = [part for name in _PARTS for part in getattr(node, name, ())]
        return _statement_at(inner, position) or node
    return None


def _covers(node: ast.AST, position: Position) -> bool:
    if not isinstance(node, (ast.stmt, ast.ExceptHandler)):
        return False
    first = node.lineno, node.col_offset
    last = node.end_lineno or 0, node.end_col_offset or 0
    return first <= (position.line, position.column) and (position.last_line, position.last_column) <= last


def _branches_tell(statement: ast.If | ast.For, kept: set[str]) -> bool:
    """Tells whether its bodies only tell, or keep numbers: no work follows from these unless somebody reads them.
    `kept` gets the variables, and `RATE` for the learning rates of an optimizer.
    """
    if not _calls_nothing(statement.test if isinstance(statement, ast.If) else statement.iter):
        return False
    for one in (*statement.body, *statement.orelse):
        match one:
            case ast.If() | ast.For():
                if not _branches_tell(one, kept):
                    return False
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                if not all(isinstance(value, _PLAIN) for value in values) or not all(map(_kept_in, targets)):
                    return False
                kept.update(map(_kept_in, targets))
            case ast.Assign() | ast.AugAssign():
                names = [_kept_in(target) for target in (one.targets if isinstance(one, ast.Assign) else [one.target])]
                if not all(names) or not _calls_nothing(one.value):
                    return False
                if names != [RATE] and not isinstance(one.value, _PLAIN):
                    return False  # arithmetic may be a tensor's
                kept.update(names)
            case _:
                if not _tells(one):
                    return False
    return True


def _kept_in(target: ast.expr) -> str:
    match target:
        case ast.Name(id=name):
            return name
        case ast.Subscript(slice=ast.Constant(value="lr")):
            return RATE
    return ""


def reads_rates(module: Sequence[ast.stmt]) -> int:
    """Returns the first line of a source file that reads the learning rate of an optimizer, other than to tell it; 0 if
    there is none.
    """
    todo: list[ast.AST] = [*reversed(module)]
    while todo:
        node = todo.pop()
        match node:
            case (
                ast.Subscript(slice=ast.Constant(value="lr"), ctx=ast.Load())
                | ast.Attribute(attr="get_last_lr" | "_last_lr")
            ):
                return node.lineno
            case ast.AugAssign(target=ast.Subscript(slice=ast.Constant(value="lr")), value=value):
                todo.append(value)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _calls_nothing(value, _ASKING_RATES):
                todo += [] if not _uses(module, {name}, node) else [value]
            case _ if not _tells(node, _ASKING_RATES):
                todo += reversed([*ast.iter_child_nodes(node)])
    return 0


def _tells(statement: ast.AST, also: tuple[str, ...] = ()) -> bool:
    match statement:
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=called) as call):
            return neutral(called) and all(_calls_nothing(one, also) for one in _arguments(call))
    return False


def _uses(nodes: Iterable[ast.AST], names: set[str], but: ast.stmt) -> bool:
    """Tells whether one of these variables is used there, other than in this statement and where it is only told."""
    for node in nodes:
        match node:
            case ast.Global(names=declared) | ast.Nonlocal(names=declared):
                if names.intersection(declared):
                    return True
            case ast.Name(id=name, ctx=ast.Load()) if name in names:
                return True
        if node is not but and not _tells(node) and _uses(ast.iter_child_nodes(node), names, but):
            return True
    return False


def _arguments(call: ast.Call) -> Iterator[ast.expr]:
    yield from call.args
    yield from (one.value for one in call.keywords)


def _calls_nothing(node: ast.expr, also: tuple[str, ...] = ()) -> bool:
    """Tells whether the expression calls nothing that may be work of the GPU's. `also`: names of more functions that
    are no such work.
    """
    return not any(
        isinstance(one, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr))
        or (isinstance(one, ast.Call) and name_called(one.func) not in (*_WRITING, *also) and not neutral(one.func))
        for one in ast.walk(node)
    )
