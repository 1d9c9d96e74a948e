"""Finds which strings an expression of a script can be, by reading its text: names that are assigned or passed as
constants, and loops over constants, are followed.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)
_Known = frozenset[str] | None
"""The strings that an expression can be; None: the text does not tell."""
_NONE: frozenset[str] = frozenset()
_GROWING = ("update", "setdefault", "append", "extend", "insert", "add")
"""Methods that add to a dictionary, a list or a set."""


class Script:
    """The text of a script's files."""

    def __init__(self, trees: Iterable[ast.Module]) -> None:
        self._scope_of: dict[ast.AST, _Scope] = {}
        """The function, or module, in which a node is."""
        self._names: dict[_Scope, dict[str, list[_Binding]]] = {}
        self._keys: dict[str, list[ast.expr]] = {}
        """The keys under which something is put into what a name holds."""
        self._others_assign: set[str] = set()
        """Names whose values also come from elsewhere: another function assigns them, or a method adds to them."""
        self._calls: dict[str, list[ast.Call]] = {}
        """The calls of functions, by their last names."""
        self._mentions: Counter[str] = Counter()
        for tree in trees:
            self._note_all(tree)

    def strings(self, expression: ast.expr) -> _Known:
        """The strings that the expression can be; None: the text does not tell. Of a formatted string it tells the
        beginning: ``LEVEL_*``.
        """
        return self._strings(expression, frozenset())

    # ---- reading the text ------------------------------------------------------------------------------------------

    def _note_all(self, tree: ast.Module) -> None:
        unread: list[tuple[ast.AST, _Scope]] = [(tree, tree)]
        while unread:
            node, scope = unread.pop()
            self._scope_of[node] = scope
            self._note(node, scope)
            inner = node if isinstance(node, _SCOPES) else scope
            unread += [(child, inner) for child in ast.iter_child_nodes(node)]

    def _note(self, node: ast.AST, scope: _Scope) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._note_target(scope, target, _Binding(node.value))
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._note_target(scope, node.target, _Binding(node.value))
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            self._note_target(scope, node.target, _Binding(each_of=node.iter))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for argument in _arguments(node.args):
                self._bind(node, argument.arg, _Binding(is_parameter=True))
        elif isinstance(node, ast.Lambda):
            for argument in _arguments(node.args):
                self._bind(scope, argument.arg, _Binding())
        elif isinstance(node, ast.Global):
            for name in node.names:
                self._others_assign.add(name)
        elif isinstance(node, ast.Call):
            self._calls.setdefault(last_name(node.func), []).append(node)
            if isinstance(node.func, ast.Attribute) and node.func.attr in _GROWING:
                self._others_assign.add(last_name(node.func.value))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            self._bind(scope, node.id, _Binding(name=node))
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            self._mentions[last_name(node)] += 1

    def _note_target(self, scope: _Scope, target: ast.expr, binding: _Binding) -> None:
        if isinstance(target, ast.Name):
            binding.name = target
            self._bind(scope, target.id, binding)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for place, one in enumerate(target.elts):
                if isinstance(one, ast.Name):
                    self._note_target(scope, one, _Binding(binding.value, binding.each_of, place))
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            self._keys.setdefault(target.value.id, []).append(target.slice)

    def _bind(self, scope: _Scope, name: str, binding: _Binding) -> None:
        found = self._names.setdefault(scope, {}).setdefault(name, [])
        # The name itself is read after the statement that says what it is given.
        if binding.name is None or all(other.name is not binding.name for other in found):
            found.append(binding)

    # ---- what an expression can be ---------------------------------------------------------------------------------

    def _bindings(self, name: ast.Name) -> list[tuple[_Scope, _Binding]]:
        """The places at which the name gets its values: in the innermost function that binds it, or in the module.
        Empty: the text does not tell.
        """
        if name.id in self._others_assign:
            return []
        scope = self._scope_of[name]
        while name.id not in self._names.get(scope, {}) and not isinstance(scope, ast.Module):
            scope = self._scope_of[scope]
        return [(scope, binding) for binding in self._names.get(scope, {}).get(name.id, [])]

    def _strings(self, expression: ast.expr, seen: frozenset[ast.AST]) -> _Known:
        if isinstance(expression, ast.Constant):
            return frozenset((expression.value,)) if isinstance(expression.value, str) else None
        if isinstance(expression, ast.IfExp):
            return _all(self._strings(each, seen) for each in (expression.body, expression.orelse))
        if isinstance(expression, ast.JoinedStr):
            beginning = expression.values[0] if expression.values else None
            return frozenset((f"{beginning.value!s}*",)) if isinstance(beginning, ast.Constant) else None
        if not isinstance(expression, ast.Name):
            return None
        if expression in seen:
            return _NONE
        seen |= {expression}
        bindings = self._bindings(expression)
        return _all(self._of(scope, each, expression.id, seen) for scope, each in bindings) if bindings else None

    def _of(self, scope: _Scope, binding: _Binding, name: str, seen: frozenset[ast.AST]) -> _Known:
        if binding.is_parameter:
            return self._passed(scope, name, seen)
        if binding.each_of is not None:
            return self._elements(binding.each_of, binding.place, seen)
        if binding.value is None:
            return None
        if binding.place is None:
            return self._strings(binding.value, seen)
        part = _part(binding.value, binding.place)
        return None if part is None else self._strings(part, seen)

    def _passed(self, function: _Scope, name: str, seen: frozenset[ast.AST]) -> _Known:
        """The strings that calls give a function's parameter."""
        assert not isinstance(function, ast.Module), "a module has no parameters"
        calls = self._calls.get(function.name, [])
        if not calls or len(calls) < self._mentions[function.name]:  # it is given to somebody who calls it
            return None
        names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        found = []
        for call in calls:
            given = {word.arg: word.value for word in call.keywords}
            # A method is called without its first parameter.
            bound = int(names[:1] in (["self"], ["cls"]) and isinstance(call.func, ast.Attribute))
            given |= dict(zip(names[bound:], call.args, strict=False))
            has_stars = None in given or any(isinstance(each, ast.Starred) for each in call.args)
            if name not in given or has_stars:
                return None
            found.append(self._strings(given[name], seen))
        return _all(found)

    def _elements(self, iterable: ast.expr, place: int | None, seen: frozenset[ast.AST]) -> _Known:
        """The strings that a loop gives its variable; `place`: of each element, its part there."""
        if isinstance(iterable, (ast.Tuple, ast.List, ast.Set)):
            parts = [each if place is None else _part(each, place) for each in iterable.elts]
            return _all(None if part is None else self._strings(part, seen) for part in parts)
        if isinstance(iterable, ast.Dict) and place is None:
            return _all(None if key is None else self._strings(key, seen) for key in iterable.keys)
        if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Attribute) and not iterable.args:
            if iterable.func.attr == "keys" or (iterable.func.attr == "items" and place == 0):
                return self._elements(iterable.func.value, None, seen)
            return None
        if isinstance(iterable, ast.Name) and iterable not in seen:
            return self._held(iterable, place, seen | {iterable})
        return None

    def _held(self, name: ast.Name, place: int | None, seen: frozenset[ast.AST]) -> _Known:
        """The strings that a loop over what the name holds gives."""
        bindings = self._bindings(name)
        found: list[_Known] = []
        for _, binding in bindings:
            if binding.value is None or binding.place is not None:
                return None
            found.append(self._elements(binding.value, place, seen))
        put = (self._strings(key, seen) for key in self._keys.get(name.id, ()))
        return _all([*found, *put]) if bindings else None


@dataclass(slots=True, eq=False)
class _Binding:
    """A place at which a name gets a value: in a way that is not followed, unless it says how."""

    value: ast.expr | None = None
    """The value that is assigned."""
    each_of: ast.expr | None = None
    """The name is given each element of this."""
    place: int | None = None
    """The name is given the part at this place of the value, or of each element."""
    is_parameter: bool = False
    name: ast.Name | None = None
    """The name where it is stored."""


def _all(found: Iterable[_Known]) -> _Known:
    known: frozenset[str] = _NONE
    for each in found:
        if each is None:
            return None
        known |= each
    return known


def _part(expression: ast.expr, place: int) -> ast.expr | None:
    if not isinstance(expression, (ast.Tuple, ast.List)) or place >= len(expression.elts):
        return None
    return expression.elts[place]


def _arguments(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from filter(None, (arguments.vararg, arguments.kwarg))


def last_name(expression: ast.expr) -> str:
    """The last name of an expression, such as ``c`` of ``a.b.c``; empty if it has none."""
    if isinstance(expression, ast.Attribute):
        return expression.attr
    return expression.id if isinstance(expression, ast.Name) else ""
