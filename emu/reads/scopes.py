"""Functions that are defined within other ones or in a module, and the variables of the code around that they see."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from .frames import Position

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
Definition = ast.FunctionDef | ast.AsyncFunctionDef


class Inner:
    """A function that is defined within another one, or in a module."""

    def __init__(self, node: Definition) -> None:
        self.node = node
        self.used = {key for part in ast.walk(node) if (key := name_of(part))}
        """Names of variables and attributes."""
        args = node.args
        own = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        local = {one.arg for one in own if one is not None}
        shared: set[str] = set()
        for part in walk(node.body):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                local.add(part.id)
            elif isinstance(part, (ast.Global, ast.Nonlocal)):
                shared.update(part.names)
        self.seen = self.used - (local - shared)
        """Variables of the code around it, and attributes."""

    def has(self, place: Position | None) -> bool:
        """Does it lie in this function?"""
        return place is not None and self.node.lineno <= place.line <= (self.node.end_lineno or 0)


def functions(nodes: Iterable[ast.AST]) -> Iterator[Definition]:
    """Those that are defined in this body, and not in another function."""
    for node in nodes:
        if isinstance(node, _FUNCTIONS):
            yield node
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from functions(ast.iter_child_nodes(node))


def walk(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """These and all below them, but not the bodies of functions and classes that are defined there."""
    for node in nodes:
        if isinstance(node, _DEFINITIONS):
            continue
        yield node
        yield from walk(list(ast.iter_child_nodes(node)))


def name_of(node: ast.AST) -> str:
    """Under which a variable or an attribute is among the names; "" for other expressions."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return f".{name}"
    return ""
