"""Where a value goes in a function: into which variables, attributes and containers, and what is decided by it.

An approximation from the source: a name that has the value once has it everywhere in the function, and what a function
makes of it has it, too. Texts, printing and logging do not decide.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from .deciding_names import (
    ASIDE,
    DECIDING,
    EXTREMES,
    FILLING,
    LOGARITHMS,
    LOOK_UP,
    OF_KEYS,
    ORDERING,
    SCHEDULING,
)
from .expressions import asks_if_finite, dictionary, formats, is_sequence, name_called, neutral, no_number
from .frames import Position
from .scopes import Inner, functions, name_of, walk

_CONTAINERS = (ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)


class Passed(NamedTuple):
    """A function gets the value: it is called with it, or a call that has the function hands it on."""

    function: ast.expr
    places: tuple[int | str, ...]
    """Of the arguments: numbers or keywords."""


class Flow:
    """Of one function's body."""

    def __init__(
        self,
        body: Sequence[ast.AST],
        *,
        read: Position | None = None,
        names: Collection[str] = (),
        filled: Collection[str] = (),
    ) -> None:
        """The value is what the expression at `read` yields, and what variables and attributes (`.loss`) of these names
        have.
        """
        self._nodes = list(walk(body))
        self._inner = [Inner(node) for node in functions(body)]
        self._flows: list[Flow] = []
        """Of functions that are defined there and see the value."""
        self._read = read
        self.names = set(names)
        self.filled = set(filled)
        """Containers among the names: whether one is empty says nothing of the value."""
        self._keys: dict[str, set[object] | None] = {}
        """Of containers: constant keys that have the value, None if others may have it."""
        self._dictionaries = {name for node in self._nodes if (name := dictionary(node))}
        while True:
            before = self._extent()
            for node in self._nodes:
                self._follow(node)
            self._flows = [flow for inner in self._inner if (flow := self._follow_inner(inner)) is not None]
            if self._extent() == before:
                break

    def _extent(self) -> tuple[int, int]:
        """Grows as long as something new is found."""
        return len(self.names), sum(1000 if keys is None else len(keys) for keys in self._keys.values())

    # ---- where it goes ---------------------------------------------------------------------------------------------
    def _follow(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value)
            case ast.AugAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
                self._assign(target, value)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self._assign(target, value)
            case ast.For(target=target) if self._is_read(node):  # Python 3.11 gives the statement's place
                self._take(target, False)
            case ast.For(target=target, iter=iterable) | ast.comprehension(target=target, iter=iterable):
                self._iterate(target, iterable)
            case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in FILLING and self._passed(node):
                self._take(owner, True)
            case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value=str(name)), value]):
                if self._has(value):
                    self._name(f".{name}", False)

    def _follow_inner(self, inner: Inner) -> Flow | None:
        """Through a function that is defined here, if it sees the value; what it changes of ours."""
        names = {name for name in self.names if name.startswith(".") or name in inner.seen}
        if not any(name in inner.used for name in names) and not inner.has(self._read):
            return None
        flow = Flow(inner.node.body, read=self._read, names=names, filled=self.filled & names)
        if flow.returned():
            self._name(inner.node.name, False)
        for name in flow.names & inner.used:
            if name.startswith(".") or name in inner.seen:
                self._name(name, name in flow.filled)
        return flow

    def _assign(self, target: ast.AST, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                self._assign(one, its)
        elif self._has(value):
            keys = self._constant_keys(value)
            if keys is not None and (name := name_of(target)):
                self._name(name, True, keys)
            else:
                self._take(target, isinstance(value, _CONTAINERS))

    def _constant_keys(self, value: ast.expr) -> set[object] | None:
        """Those of a dictionary's items that have the value."""
        if not isinstance(value, ast.Dict):
            return None
        keys = [key for key, its in zip(value.keys, value.values, strict=True) if self._has(its)]
        if all(isinstance(key, ast.Constant) for key in keys):
            return {key.value for key in keys if isinstance(key, ast.Constant)}
        return None

    def _iterate(self, target: ast.AST, iterable: ast.expr) -> None:
        """Keys of dictionaries and counters of `enumerate` do not have the value."""
        match target, iterable:
            case ast.Tuple(elts=[_, second]), ast.Call(func=ast.Attribute(attr="items")) if self._has(iterable):
                self._take(second, False)
            case ast.Tuple(elts=[_, second]), ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]):
                self._iterate(second, inner)
            case ast.Tuple(elts=parts), ast.Call(func=ast.Name(id="zip"), args=args) if len(parts) == len(args):
                for one, its in zip(parts, args, strict=True):
                    self._iterate(one, its)
            case _ if self._has(iterable) and name_of(iterable) not in self._dictionaries:
                self._take(target, False)

    def _take(self, target: ast.AST, container: bool) -> None:
        match target:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._take(part, False)
            case ast.Starred(value=inner):
                self._take(inner, container)
            case ast.Subscript(value=inner, slice=ast.Constant(value=key)) if name_of(inner):
                self._name(name_of(inner), True, {key})
            case ast.Subscript(value=inner):
                self._take(inner, True)
            case ast.Name() | ast.Attribute():
                self._name(name_of(target), container)

    def _name(self, name: str, container: bool, keys: set[object] | None = None) -> None:
        """`keys`: that have it, None if all may."""
        if container and name not in self.names:
            self.filled.add(name)
        elif not container:
            self.filled.discard(name)
        before = self._keys.get(name, None if name in self.names else set())
        self._keys[name] = before | keys if before is not None and keys is not None else None
        self.names.add(name)

    def _lacks(self, container: ast.expr, key: ast.expr) -> bool:
        """Is it an item of a container that has the value in others?"""
        keys = self._keys.get(name_of(container))
        return keys is not None and isinstance(key, ast.Constant) and key.value not in keys

    def _has(self, node: ast.AST | None) -> bool:
        """Does the expression's value follow from it?"""
        if node is None or isinstance(node, (ast.JoinedStr, ast.Constant)) or formats(node):
            return False
        if isinstance(node, ast.expr) and self._is_read(node):
            return True
        match node:
            case ast.Name(id=name):
                return name in self.names
            case ast.Attribute(value=owner, attr=name):
                return f".{name}" in self.names or (name not in ASIDE and self._has(owner))
            case ast.Call(func=called):
                name = name_called(called)
                if neutral(called) or (name in OF_KEYS and node.args and self._sees_keys(node)):
                    return False
                of = called.value if isinstance(called, ast.Attribute) else None
                if of is not None and name in LOOK_UP and node.args and self._lacks(of, node.args[0]):
                    return False
                return bool(self._passed(node)) or self._has(of) or name_of(called) in self.names
            case ast.Compare():
                return self._compares(node)
            case ast.Subscript(value=owner, slice=key) if self._lacks(owner, key):
                return False
            case ast.Lambda(body=body):
                return self._has(body)
        return any(self._has(child) for child in ast.iter_child_nodes(node))

    def _is_read(self, node: ast.expr | ast.stmt) -> bool:
        return self._read is not None and Position.of(node) == self._read

    def _sees_keys(self, call: ast.Call) -> bool:
        """Of a dictionary, and nothing else that has the value. Of several, `min` and `max` choose one."""
        if name_called(call.func) in EXTREMES and len(call.args) > 1:
            return False
        others = [one for one in call.args if name_of(one) not in self._dictionaries]
        return not any(self._has(one) for one in (*others, *(keyword.value for keyword in call.keywords)))

    def _passed(self, call: ast.Call) -> tuple[int | str, ...]:
        places: list[int | str] = [i for i, argument in enumerate(call.args) if self._has(argument)]
        return (*places, *(one.arg or "" for one in call.keywords if self._has(one.value)))

    # ---- what becomes of it ----------------------------------------------------------------------------------------
    def returned(self) -> bool:
        """Does the function's caller get it?"""
        kinds = (ast.Return, ast.Yield)
        return any(isinstance(node, kinds) and self._has(node.value) for node in self._nodes)

    def attributes(self) -> frozenset[str]:
        """That have it: other functions see them."""
        return frozenset(name for name in self.names if name.startswith("."))

    def calls(self) -> Iterator[Passed]:
        """Functions that get it."""
        for node in self._nodes:
            if isinstance(node, ast.Call) and not neutral(node.func) and (places := self._passed(node)):
                yield Passed(node.func, places)
                yield from self._handed_on(node, places)
        for flow in self._flows:
            yield from flow.calls()

    def _handed_on(self, call: ast.Call, places: tuple[int | str, ...]) -> Iterator[Passed]:
        """By `Thread(target=f, args=(value,))`, `pool.submit(f, value)`, `partial(f, value)`."""
        for keyword in call.keywords:
            if keyword.arg == "target":
                handed = next((one.value for one in call.keywords if one.arg == "args"), None)
                if isinstance(handed, ast.Tuple):
                    yield Passed(keyword.value, tuple(i for i, one in enumerate(handed.elts) if self._has(one)))
        if call.args and 0 not in places:
            yield Passed(call.args[0], tuple(one - 1 if isinstance(one, int) else one for one in places))

    def decision(self) -> ast.expr | None:
        """The first at the read or behind it, else the first of all: an earlier one is of a loop's next turn, or of
        another variable of the same name.
        """
        before = None
        for node in self.decisions():
            if self._read is None or node.lineno >= self._read.line:
                return node
            before = before or node
        return before

    def decisions(self) -> Iterator[ast.expr]:
        """Expressions by which the program decides on it."""
        for node in self._nodes:
            match node:
                case ast.Compare() if self._compares(node):
                    yield node
                case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
                    if self._is_true(test) or self._is_read(node):
                        yield test
                case ast.BoolOp(values=values) if any(self._is_true(value) for value in values[:-1]):
                    yield node
                case ast.UnaryOp(op=ast.Not(), operand=operand) if self._is_true(operand):
                    yield node
                case ast.Match(subject=subject) if self._has(subject):
                    yield subject
                case ast.Call(func=ast.Lambda() as called) if self._decides_in_lambda(called, self._passed(node)):
                    yield node
                case ast.Call(args=[ast.Lambda() as called, *_]) if self._hands_to_lambda(node, called):
                    yield node
                case ast.Subscript(slice=place) if self._has(place) and isinstance(node.ctx, ast.Load):
                    yield node
                case ast.BinOp(op=ast.Mult(), left=left, right=right):
                    if any(is_sequence(one) and self._has(size) for one, size in ((left, right), (right, left))):
                        yield node
                case ast.BinOp(op=ast.Div() | ast.FloorDiv() | ast.Mod(), right=divisor) if self._is_zero(divisor):
                    if not formats(node):
                        yield node
                case ast.Call(func=ast.Attribute(value=ast.Name(id="math")), args=[number, *_]) if name_called(
                    node.func
                ) in LOGARITHMS and self._is_zero(number):
                    yield node
                case ast.Call() if self._chooses(node):
                    yield node
        for flow in self._flows:
            yield from flow.decisions()

    def _is_zero(self, node: ast.expr) -> bool:
        """Would it raise, because a value that nobody computed reads as 0? Not if something is added to it, nor if it
        is one of a dictionary's items and nobody knows which have it.
        """
        match node:
            case ast.Subscript(value=owner, slice=ast.Constant(value=str())) if self._keys.get(name_of(owner)) is None:
                return False
        return self._has(node) and not isinstance(node, (ast.BinOp, ast.BoolOp, ast.IfExp))

    def _hands_to_lambda(self, call: ast.Call, called: ast.Lambda) -> bool:
        """By `map(lambda loss: loss > 2, losses)`; `reduce` hands two elements of one list on."""
        places = tuple(place - 1 for place in self._passed(call) if isinstance(place, int) and place)
        both = bool(places) and name_called(call.func) == "reduce"
        return self._decides_in_lambda(called, (0, 1) if both else places)

    def _decides_in_lambda(self, called: ast.Lambda, places: tuple[int | str, ...]) -> bool:
        """Of one that is called where it is written."""
        parameters = [one.arg for one in (*called.args.posonlyargs, *called.args.args)]
        known = {*range(len(parameters)), *parameters, *(one.arg for one in called.args.kwonlyargs)}
        names = {parameters[place] if isinstance(place, int) else place for place in places if place in known}
        return any(Flow([called.body], names=frozenset(names)).decisions())

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
        """Is the value itself a condition? Comparisons in it are found by themselves."""
        if self._is_read(test):
            return True
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._is_true(operand)
            case ast.BoolOp(values=values):
                return any(self._is_true(value) for value in values)
            case ast.Compare():
                return False
            case ast.Name(id=name):
                return name in self.names and name not in self.filled
            case ast.Attribute(attr=name):
                return f".{name}" in self.names and f".{name}" not in self.filled
        return self._has(test)

    def _chooses(self, node: ast.Call) -> bool:
        name = name_called(node.func)
        if isinstance(node.func, ast.Attribute):
            if name == SCHEDULING:
                return bool(self._passed(node))
            if name in LOOK_UP and node.args and self._has(node.args[0]):
                return True
        if name == "partial" and len(node.args) > 1 and name_called(node.args[0]) in DECIDING:
            return bool(self._passed(node))
        plain = isinstance(node.func, ast.Name)
        if name not in DECIDING and not (plain and name in EXTREMES):
            return False  # `x.max()` and `np.max(x)` are numbers like others
        read = self._is_read(node)
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if name in OF_KEYS and not read and self._sees_keys(node):
            return False
        involved = read or bool(self._passed(node)) or (name in ORDERING and self._has(owner))
        bounded = name in EXTREMES and len(node.args) > 1 and any(isinstance(a, ast.Constant) for a in node.args)
        return involved and not bounded  # min(loss, 20) only limits it
