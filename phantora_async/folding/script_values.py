"""Evaluates expressions of a script for each rank, as far as its text, its arguments and the rank's place determine
them.

A value is one for all ranks, or one for each (`Each`), or not known. Names have the value of what is assigned to them
or passed for them anywhere in the text; names such as ``local_rank`` mean what they say if nothing else is assigned.
Nothing of the script is executed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emu.contract.folding import Mesh
from emu.contract.isolation import host_name
from phantora_async.folding.script_text import Source, last_name

RANK, LOCAL_RANK, SERVER, GROUP = "rank", "local rank", "server", "rank in a group"
COORDINATE = "coordinate in a mesh"
"""The places of a rank on which expressions can depend. Those in a group are never known, and coordinates are known in
meshes that the text tells.
"""
_MESHES = ("init_device_mesh", "DeviceMesh")


class Unknown:
    """The type of a value that the text does not determine."""


UNKNOWN = Unknown()


class Each(tuple[Any, ...]):
    """A value for each rank."""

    __slots__ = ()


_NAMES = {
    RANK: "rank global_rank world_rank my_rank get_rank process_index",
    LOCAL_RANK: "local_rank get_local_rank get_node_local_rank local_process_index current_device",
    SERVER: "node_rank get_node_rank machine_rank node_id node_index",
}
_PLACES = {name: place for place, names in _NAMES.items() for name in names.split()}
_VARIABLES = {
    "RANK": RANK,
    "ROLE_RANK": RANK,
    "LOCAL_RANK": LOCAL_RANK,
    "GROUP_RANK": SERVER,
    "NODE_RANK": SERVER,
}
_FIRST_OF = {
    "is_main_process": RANK,
    "is_world_process_zero": RANK,
    "is_global_zero": RANK,
    "is_local_main_process": LOCAL_RANK,
    "is_local_process_zero": LOCAL_RANK,
}
"""The names that frameworks have for being the first rank, and the first one of each server."""
_WORLD = frozenset(("world_size", "get_world_size", "num_processes"))
_GPUS = frozenset(("local_world_size", "get_local_world_size", "device_count", "nproc_per_node", "gpus_per_node"))
_HOST = frozenset(("hostname", "gethostname", "getfqdn", "nodename"))


def _number(value: Any) -> Any:
    """The value. Raises TypeError for texts, which operators repeat and format."""
    if not isinstance(value, int | float):
        raise TypeError
    return value


def _short(values: Sequence[Any]) -> Sequence[Any]:
    if len(values) == 1 and len(values[0]) > _LONG:
        raise ValueError
    return values


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: lambda one, other: _number(one) * _number(other),
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: lambda one, other: _number(one) % _number(other),
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.RShift: operator.rshift,
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
    ast.In: lambda one, others: one in others,
    ast.NotIn: lambda one, others: one not in others,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "int": int,
    "str": str,
    "bool": bool,
    "float": float,
    "abs": abs,
    "min": lambda *of: min(*_short(of)),
    "max": lambda *of: max(*_short(of)),
    "len": len,
    "range": range,
    "divmod": divmod,
    "round": round,
    "tuple": lambda of: tuple(_short((of,))[0]),
    "list": lambda of: tuple(_short((of,))[0]),
    "set": lambda of: tuple(_short((of,))[0]),
}
_METHODS = frozenset(("endswith", "startswith", "strip", "lower", "upper", "split", "isdigit"))
_ERRORS = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
_DEEP = 40
_MOST_STEPS = 200_000
"""The most expressions of one script that are evaluated."""
_MOST_DEFINITIONS = 8
"""The most definitions of a name. A name with more is the same word for many things."""
_MOST_NAMES = 8
"""The most names that stand for each other, one after the other, behind which a mesh is looked for."""
_LONG = 1 << 16
"""The most characters or items of a text or a list that is computed."""


@dataclass
class _Definitions:
    """The expressions that are bound to names."""

    of: dict[str, list[tuple[ast.expr, Source]]] = field(default_factory=dict)

    def add(self, name: str, value: ast.expr, source: Source) -> None:
        self.of.setdefault(name, []).append((value, source))


@dataclass(frozen=True)
class Ranks:
    """The places of the ranks of a job."""

    servers: tuple[int, ...]
    """The number of GPUs in use on each server."""
    mesh: Mesh | None = None

    def place(self, place: str) -> Each:
        if place in (RANK, COORDINATE):  # each rank has coordinates of its own
            return Each(range(sum(self.servers)))
        if place == LOCAL_RANK:
            return Each(gpu for gpus in self.servers for gpu in range(gpus))
        return Each(server for server, gpus in enumerate(self.servers) for _ in range(gpus))

    def coordinate(self, name: str) -> Each | None:
        """The coordinate of each rank along the axis of that name; None: there is no such axis."""
        if self.mesh is not None:
            for at, axis in enumerate(self.mesh.axes):
                if axis.name == name:
                    return Each(self.mesh.coordinate(rank, at) for rank in range(sum(self.servers)))
        return None


class ScriptValues:
    def __init__(self, sources: Sequence[Source], arguments: Sequence[str], ranks: Ranks) -> None:
        self._ranks = ranks
        self._arguments = tuple(arguments)
        self._names: dict[Source | None, _Definitions] = {None: _Definitions()}
        """The definitions of each file; None: of all files."""
        self._attributes = _Definitions()
        self._functions: dict[str, list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, Source]]] = {}
        self._options: dict[str, tuple[Any, ast.expr | None, Source]] = {}
        """The options by their name in argparse's result: what is given (None: nothing), and the default."""
        self._places: dict[str, Each] = {}
        self._used: set[str] = set()
        self._deep: set[ast.expr] = set()
        """Expressions that are being evaluated."""
        self._known: dict[ast.expr, tuple[Any, set[str]]] = {}
        self._steps = 0
        self._cut = 0
        """The number of evaluations that came back to themselves or went too far."""
        for source in sources:
            self._names[source] = _Definitions()
            for node in ast.walk(source.tree):
                self._define(node, source)
        for source in sources:
            for node in ast.walk(source.tree):
                if isinstance(node, ast.Call):
                    self._bind(node, source)
        self._parse(sources)
        self._placed = self._find_placed(sources)
        self._dependent: dict[ast.expr, bool] = {}

    @property
    def functions(self) -> frozenset[str]:
        """The names of the script's own functions."""
        return frozenset(self._functions)

    def tables(self, node: ast.expr) -> list[ast.Dict]:
        """The dictionaries that the text writes for an expression: it is one itself, or the name of one."""
        match node:
            case ast.Dict():
                return [node]
            case ast.Name(id=name):
                found = self._names[None].of.get(name, ())
            case ast.Attribute(attr=name):
                found = (*self._attributes.of.get(name, ()), *self._names[None].of.get(name, ()))
            case _:
                return []
        return [one for one, _ in found if isinstance(one, ast.Dict)]

    def may_depend_on_place(self, node: ast.expr) -> bool:
        """Returns false if nothing in the expression has to do with the rank's place."""
        known = self._dependent.get(node)
        if known is None:
            known = self._dependent[node] = not self._placed.isdisjoint(_identifiers(node))
        return known

    def _find_placed(self, sources: Sequence[Source]) -> set[str]:
        """Names of anything that may depend on a rank's place: those that mean one, and those bound to such."""
        bound: dict[str, set[str]] = {}
        """By name: the names whose value may have it."""

        def bind(name: str, value: ast.expr) -> None:
            for one in _identifiers(value):
                bound.setdefault(one, set()).add(name)

        for definitions in (self._names[None], self._attributes):
            for name, values in definitions.of.items():
                for value, _ in values:
                    bind(name, value)
        for source in sources:
            for name, values in self._names[source].of.items():
                for value, _ in values:
                    bind(name, value)
        for name, found in self._functions.items():
            for function, _ in found:
                for returned in _returned(function):
                    bind(name, returned)
        for name, (_, default, _) in self._options.items():
            if default is not None:
                bind(name, default)
        unread = {one for one in self._identifiers_of(sources) if self._means_place(one)}
        placed: set[str] = set()
        while unread:
            one = unread.pop()
            if one not in placed:
                placed.add(one)
                unread |= bound.get(one, set()) - placed
        return placed

    def _identifiers_of(self, sources: Sequence[Source]) -> set[str]:
        return {one for source in sources for one in _identifiers(source.tree)}

    def _means_place(self, name: str) -> bool:
        if name in _VARIABLES or name in ("HOSTNAME", "uname", "node", "rank", "get_coordinate"):
            return True
        outer, self._used = self._used, set()
        self._by_name(name)
        used, self._used = self._used, outer
        return bool(used)

    def of(self, node: ast.expr, source: Source) -> tuple[Any, frozenset[str]]:
        """The value (a constant, `Each` or `UNKNOWN`), and the places of a rank on which it depends."""
        outer, self._used = self._used, set()
        try:
            value = self._value(node, source)
            return value, frozenset(self._used)
        finally:
            self._used = outer | self._used

    # ---- definitions -----------------------------------------------------------------------------------------------

    def _define(self, node: ast.AST, source: Source) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value, source)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                self._assign(target, value, source)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self._functions.setdefault(name, []).append((node, source))
                positional = [*node.args.posonlyargs, *node.args.args]
                for parameter, value in zip(reversed(positional), reversed(node.args.defaults), strict=False):
                    self._add(parameter.arg, value, source)
                for parameter, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
                    if default is not None:
                        self._add(parameter.arg, default, source)
            case ast.ClassDef(name=name, body=body):
                for one in body:
                    if isinstance(one, ast.FunctionDef) and one.name == "__init__":
                        self._functions.setdefault(name, []).append((one, source))

    def _assign(self, target: ast.expr, value: ast.expr, source: Source) -> None:
        match target, value:
            case ast.Name(id=name), _:
                self._add(name, value, source)
            case ast.Attribute(attr=name), _:
                self._attributes.add(name, value, source)
            case ((ast.Tuple(elts=targets) | ast.List(elts=targets)), (ast.Tuple(elts=values) | ast.List(elts=values))):
                if len(targets) == len(values):
                    for one, its in zip(targets, values, strict=True):
                        self._assign(one, its, source)
            case ((ast.Tuple(elts=targets) | ast.List(elts=targets)), _):
                for number, one in enumerate(targets):
                    item = ast.Subscript(value=value, slice=ast.Constant(number), ctx=ast.Load())
                    self._assign(one, item, source)

    def _add(self, name: str, value: ast.expr, source: Source) -> None:
        for where in (source, None):
            self._names[where].add(name, value, source)

    def _bind(self, call: ast.Call, source: Source) -> None:
        """Binds the parameters of the script's own functions to the expressions that are passed for them."""
        for function, where in self._functions.get(last_name(call.func), ()):
            parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
            if parameters[:1] in (["self"], ["cls"]):
                parameters = parameters[1:]
            given = [*zip(parameters, call.args, strict=False), *((one.arg, one.value) for one in call.keywords)]
            for name, value in given:
                if name and not isinstance(value, ast.Starred):
                    self._names[where].add(name, value, source)

    def _parse(self, sources: Sequence[Source]) -> None:
        """Binds the options of argparse to the values that the command line gives."""
        declared: list[tuple[list[str], dict[str, ast.expr], Source]] = []
        for source in sources:
            for node in ast.walk(source.tree):
                if isinstance(node, ast.Call) and last_name(node.func) in ("add_argument", "option"):
                    names = [str(one.value) for one in node.args if isinstance(one, ast.Constant)]
                    keywords = {one.arg: one.value for one in node.keywords if one.arg}
                    if names:
                        declared.append((names, keywords, source))
        flags = {name for names, keywords, _ in declared for name in names if _is_flag(keywords)}
        given, alone = _given(self._arguments, flags)
        for names, keywords, source in declared:
            kind = keywords.get("type")
            change = _FUNCTIONS.get(kind.id, str) if isinstance(kind, ast.Name) else str
            named = keywords.get("dest")
            first = next((name for name in names if name.startswith("--")), names[0])
            to = named.value if isinstance(named, ast.Constant) else first.lstrip("-").replace("-", "_")
            default: ast.expr | None = keywords.get("default", ast.Constant(None))
            text: Any = next((given[name] for name in names if name in given), None)
            if not names[0].startswith("-"):
                text = alone.pop(0) if alone else None
            try:
                found = text if text is None or isinstance(text, bool) else change(text)
            except _ERRORS:
                found, default = None, None
            if isinstance(found, bool) and text is True:
                found = not _stores_false(keywords)
            if _is_flag(keywords) and "default" not in keywords:
                default = ast.Constant(_stores_false(keywords))
            self._options[str(to)] = found, default, source

    # ---- values ----------------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr, source: Source) -> Any:
        known = self._known.get(node)
        if known is not None:
            self._used |= known[1]
            return known[0]
        self._steps += 1
        if node in self._deep or len(self._deep) > _DEEP or self._steps > _MOST_STEPS:
            self._cut += 1
            return UNKNOWN
        cut, outer, self._used = self._cut, self._used, set()
        self._deep.add(node)
        try:
            value = self._evaluated(node, source)
            if cut == self._cut:  # not of a name that is defined by itself: that depends on where one begins
                self._known[node] = value, self._used
            return value
        finally:
            self._deep.discard(node)
            self._used = outer | self._used

    def _evaluated(self, node: ast.expr, source: Source) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                everywhere = self._names[None].of.get(name, [])
                return self._named(name, self._names[source].of.get(name, everywhere))
            case ast.UnaryOp(op=op, operand=operand):
                return self._applied(_OPERATORS.get(type(op)), self._value(operand, source))
            case ast.BinOp(left=left, op=op, right=right):
                return self._applied(_OPERATORS.get(type(op)), self._value(left, source), self._value(right, source))
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [self._value(side, source) for side in (left, *others)]
                result: Any = True
                for comparison, one, other in zip(ops, sides, sides[1:], strict=False):
                    now = self._applied(_OPERATORS.get(type(comparison)), one, other)
                    result = self._applied(lambda before, its: before and its, result, now)
                return result
            case ast.BoolOp(op=op, values=values):
                return self._joined(isinstance(op, ast.And), [self._value(one, source) for one in values])
            case ast.IfExp(test=test, body=body, orelse=other):
                return self._applied(
                    lambda is_so, then, otherwise: then if is_so else otherwise,
                    *(self._value(one, source) for one in (test, body, other)),
                )
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                return self._applied(lambda *parts: parts, *(self._value(one, source) for one in elements))
            case ast.Dict(keys=keys, values=values) if all(key is not None for key in keys):
                told = [self._value(one, source) for one in (*[key for key in keys if key is not None], *values)]
                half = len(values)
                return self._applied(lambda *parts: dict(zip(parts[:half], parts[half:], strict=True)), *told)
            case ast.JoinedStr(values=values):
                parts = [self._value(one, source) for one in values]
                return self._applied(lambda *texts: "".join(map(str, texts)), *parts)
            case ast.FormattedValue(value=value, format_spec=None):
                return self._value(value, source)
            case ast.Subscript():
                return self._item(node, source)
            case ast.Attribute():
                return self._attribute(node, source)
            case ast.Call():
                return self._called(node, source)
            case ast.NamedExpr(value=value):
                return self._value(value, source)
        for child in ast.iter_child_nodes(node):  # the value is unknown, but not what it depends on
            if isinstance(child, ast.expr):
                self._value(child, source)
        return UNKNOWN

    def _named(self, name: str, definitions: Sequence[tuple[ast.expr, Source]]) -> Any:
        """The value of a name. Among several definitions only those count that depend on the rank's place: others are
        its values without one.
        """
        likely = [one for one in definitions if self.may_depend_on_place(one[0])]
        if (not likely and len(definitions) > 1) or len(likely) > _MOST_DEFINITIONS:
            return known if (known := self._by_name(name)) is not None else UNKNOWN
        found = [self._defined(*one) for one in likely or definitions]
        placed = [one for one in found if one[1]]
        if not placed and (known := self._by_name(name)) is not None:
            return known
        for _, used in placed:
            self._used |= used
        values = [value for value, _ in placed or found]
        if not values or any(value is UNKNOWN for value in values) or any(value != values[0] for value in values):
            return UNKNOWN
        return values[0]

    def _defined(self, node: ast.expr, source: Source) -> tuple[Any, set[str]]:
        outer, self._used = self._used, set()
        try:
            return self._value(node, source), self._used
        finally:
            self._used = outer

    def _place(self, place: str) -> Each:
        self._used.add(place)
        if place not in self._places:
            self._places[place] = self._ranks.place(place)
        return self._places[place]

    def _by_name(self, name: str) -> Any:
        """The value that a name has by itself, such as ``local_rank``; None: none."""
        name = name.lower().lstrip("_")
        if name in _PLACES:
            return self._place(_PLACES[name])
        if name in _FIRST_OF:
            return self._applied(operator.eq, self._place(_FIRST_OF[name]), 0)
        if name in _WORLD:
            return sum(self._ranks.servers)
        if name in _GPUS:
            servers = self._ranks.servers
            return servers[0] if len({*servers}) == 1 else Each(gpus for gpus in servers for _ in range(gpus))
        if name in _HOST:
            return self._applied(host_name, self._place(SERVER))
        axis = name.removesuffix("_rank")
        if axis != name and (coordinate := self._ranks.coordinate(axis)) is not None:
            self._used.add(f"coordinate {axis}")
            return coordinate
        return None

    def _attribute(self, node: ast.Attribute, source: Source) -> Any:
        name = node.attr
        if name == "argv":
            return ("", *self._arguments)
        if name == "index" and isinstance(device := self._value(node.value, source), str | Each):
            return self._applied(lambda text: int(text.removeprefix("cuda:")), device)
        definitions = self._attributes.of.get(name, ())
        if name in self._options and not any(self._defined(*one)[1] for one in definitions):
            given, default, where = self._options[name]
            if given is not None:
                return given
            value, used = self._defined(default, where) if default is not None else (UNKNOWN, set())
            if used or self._by_name(name) is None:
                self._used |= used
                return value
        module = self._names[None].of.get(name, ()) if isinstance(node.value, ast.Name) else ()
        return self._named(name, definitions or module)

    def _item(self, node: ast.Subscript, source: Source) -> Any:
        match node:
            case ast.Subscript(
                value=ast.Attribute(attr="environ") | ast.Name(id="environ"), slice=ast.Constant(value=str(name))
            ):
                return self._variable(name)
            case ast.Subscript(slice=ast.Slice(lower=lower, upper=upper, step=None)):
                ends = [None if end is None else self._value(end, source) for end in (lower, upper)]
                return self._applied(lambda one, *its: one[slice(*its)], self._value(node.value, source), *ends)
        match node:
            case ast.Subscript(value=ast.Call(func=function), slice=ast.Constant(value=int(at))):
                parts = [
                    (returned.elts[at], where)
                    for own, where in self._functions.get(last_name(function), ())
                    for returned in _returned(own)
                    if isinstance(returned, ast.Tuple) and 0 <= at < len(returned.elts)
                ]
                if parts:
                    return self._named("", parts)
        key = self._value(node.slice, source)
        found = self._applied(operator.getitem, self._value(node.value, source), key)
        if found is UNKNOWN and isinstance(key, str) and (known := self._by_name(key)) is not None:
            return known
        return found

    def _variable(self, name: str) -> Any:
        """The value of an environment variable."""
        if name in _VARIABLES:
            return self._applied(str, self._place(_VARIABLES[name]))
        if name == "HOSTNAME":
            return self._by_name("hostname")
        if (known := self._by_name(name)) is not None and name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
            return self._applied(str, known)
        return UNKNOWN

    def _called(self, node: ast.Call, source: Source) -> Any:
        """The value of a call. For an unknown function the arguments do not count: most return something else."""
        name = last_name(node.func)
        outer, self._used = self._used, set()
        arguments = [self._value(one, source) for one in node.args]
        value = self._result(node, name, arguments, source)
        used, self._used = self._used, outer
        if value is not UNKNOWN or name in _FUNCTIONS or name in self._functions or used & {GROUP, COORDINATE}:
            self._used |= used
        return value

    def _result(self, node: ast.Call, name: str, arguments: Sequence[Any], source: Source) -> Any:
        variables = (*_VARIABLES, "HOSTNAME", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
        if name in ("get", "getenv") and arguments and arguments[0] in variables:
            return self._variable(arguments[0])
        if name == "get" and isinstance(node.func, ast.Attribute):
            table = self._value(node.func.value, source)
            return self._applied(lambda of, *rest: of.get(*rest), table, *arguments)
        if name == "field":  # of a dataclass
            for keyword in node.keywords:
                if keyword.arg in ("default", "default_factory"):
                    made = keyword.value
                    if isinstance(made, ast.Name) and made.id in self._functions:
                        return self._returned(made.id)
                    return self._value(made.body if isinstance(made, ast.Lambda) else made, source)
        if name in ("get_local_rank", "get_coordinate", "get_rank", "rank") and self._in_mesh(node):
            return self._mesh_rank(node, name, source)
        if name == "device" and arguments:
            return arguments[0] if len(arguments) == 1 else self._applied(lambda *of: f"cuda:{of[1]}", *arguments)
        if name == "uname" or (name == "node" and not arguments):
            return self._by_name("hostname")
        if isinstance(node.func, ast.Name) and name in _FUNCTIONS and not node.keywords:
            return self._applied(_FUNCTIONS[name], *arguments)
        if isinstance(node.func, ast.Attribute) and name in _METHODS:
            return self._applied(
                lambda text, *rest: getattr(text, name)(*rest), self._value(node.func.value, source), *arguments
            )
        if name in self._functions and not (isinstance(node.func, ast.Attribute) and name in _PLACES):
            return self._returned(name)
        if not node.args and not node.keywords and (known := self._by_name(name)) is not None:
            return known
        return UNKNOWN

    def _in_mesh(self, node: ast.Call) -> bool:
        """Returns true if the call asks for the place in a mesh or a group, and not in the world or on the server."""
        name = last_name(node.func)
        base = node.func.value if isinstance(node.func, ast.Attribute) else None
        if name in ("get_rank", "rank"):
            return bool(node.args or node.keywords) or (name == "rank" and base is not None)
        if name == "get_coordinate":
            return base is not None
        return bool(node.args) or (base is not None and "mesh" in ast.unparse(base).lower())

    def _mesh_rank(self, node: ast.Call, name: str, source: Source) -> Any:
        """The coordinate along a mesh's axis that the text names, or all coordinates; for a mesh with one axis, the
        rank.
        """
        base = node.func.value if isinstance(node.func, ast.Attribute) else None
        base = self._mesh_of(base, source)
        by_name = next((one.value for one in node.keywords if one.arg == "mesh_dim"), None)
        named = node.args[0] if node.args else by_name or (base.slice if isinstance(base, ast.Subscript) else None)
        axes = self._ranks.mesh.axes if self._ranks.mesh is not None else ()
        is_folded = isinstance(base, ast.Call) and self._is_folded(base, source)
        if isinstance(named, ast.Constant) and isinstance(named.value, int) and is_folded and named.value < len(axes):
            named = ast.Constant(axes[named.value].name)
        if isinstance(named, ast.Constant) and isinstance(named.value, str):
            coordinate = self._ranks.coordinate(named.value)
            if coordinate is not None:
                self._used.add(f"coordinate {named.value}")
                return Each((one,) for one in coordinate) if name == "get_coordinate" else coordinate
        elif name == "get_local_rank" and len(axes) == 1 and named is None:
            return self._place(RANK)
        elif name == "get_coordinate" and named is None and is_folded:
            coordinates = [self._ranks.coordinate(axis.name) for axis in axes]
            if None not in coordinates:
                self._used.add(COORDINATE)
                return Each(zip(*(one for one in coordinates if one is not None), strict=True))
        self._used.add(COORDINATE if name == "get_coordinate" else GROUP)
        return UNKNOWN

    def _mesh_of(self, node: ast.expr | None, source: Source, depth: int = 0) -> ast.expr | None:
        """The expression that makes a mesh or takes some axes of one, where a name or an attribute stands for it; the
        name itself if the text does not tell, or gives it several meshes.
        """
        match node:
            case ast.Name(id=name):
                found = self._names[source].of.get(name) or self._names[None].of.get(name, [])
            case ast.Attribute(attr=name):
                found = self._attributes.of.get(name, [])
            case _:
                return node
        if len({ast.dump(one) for one, _ in found}) != 1 or depth > _MOST_NAMES:
            return node
        one, where = found[0]
        return self._mesh_of(one, where, depth + 1)

    def _is_folded(self, made: ast.Call, source: Source) -> bool:
        """Returns true if the call makes the mesh along which the run is folded: one shape, with as many ranks."""
        axes = self._ranks.mesh.axes if self._ranks.mesh is not None else ()
        shape = next((one.value for one in made.keywords if one.arg in ("mesh_shape", "mesh")), None)
        shape = made.args[1] if len(made.args) > 1 else shape
        if (
            last_name(made.func) not in _MESHES
            or not isinstance(shape, ast.Tuple | ast.List)
            or len(shape.elts) != len(axes)
        ):
            return False
        sizes = [self.of(one, source)[0] for one in shape.elts]
        known = [size == axis.size for size, axis in zip(sizes, axes, strict=True) if size is not UNKNOWN]
        return all(known) and len(known) >= len(axes) - 1  # the ranks leave one size for one that is not known

    def _returned(self, name: str) -> Any:
        """The value that one of the script's own functions returns, if that does not depend on its arguments."""
        return self._named(
            name, [(one, where) for function, where in self._functions[name] for one in _returned(function)]
        )

    def _joined(self, is_and: bool, values: Sequence[Any]) -> Any:
        """The value of ``a and b`` or ``a or b``: known as well where one side decides."""
        known = [value for value in values if value is not UNKNOWN]
        decides = next((value for value in known if not isinstance(value, Each) and bool(value) is not is_and), UNKNOWN)
        if len(known) < len(values):
            return decides

        def join(*sides: Any) -> Any:
            return next((side for side in sides[:-1] if bool(side) is not is_and), sides[-1])

        return self._applied(join, *values)

    def _applied(self, function: Callable[..., Any] | None, *operands: Any) -> Any:
        if function is None or any(operand is UNKNOWN for operand in operands):
            return UNKNOWN
        try:
            if not any(isinstance(operand, Each) for operand in operands):
                return _kept(function(*operands))
            count = sum(self._ranks.servers)
            each = (one if isinstance(one, Each) else (one,) * count for one in operands)
            return Each(_kept(function(*of_rank)) for of_rank in zip(*each, strict=True))
        except _ERRORS:
            return UNKNOWN


def _kept(value: Any) -> Any:
    """The value. Raises ValueError if it is too long to go on with."""
    if (isinstance(value, int) and value.bit_length() > 128) or (isinstance(value, str | tuple) and len(value) > _LONG):
        raise ValueError
    return value


def _returned(function: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value


def _identifiers(tree: ast.AST) -> Iterator[str]:
    """Yields names, attributes, and texts that may be names of environment variables."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
            case ast.Constant(value=str(name)) if name.isidentifier():
                yield name


def _is_flag(keywords: Mapping[str, ast.expr]) -> bool:
    action = keywords.get("action")
    return isinstance(action, ast.Constant) and action.value in ("store_true", "store_false")


def _stores_false(keywords: Mapping[str, ast.expr]) -> bool:
    action = keywords.get("action")
    return isinstance(action, ast.Constant) and action.value == "store_false"


def _given(arguments: Sequence[str], flags: set[str]) -> tuple[dict[str, Any], list[str]]:
    """The options with their values, and the words that belong to none."""
    options: dict[str, Any] = {}
    alone: list[str] = []
    words: Iterator[str] = iter(arguments)
    for word in words:
        name, is_given, value = word.partition("=")
        if not word.startswith("-") or word.lstrip("-").replace(".", "").isdecimal():
            alone.append(word)
        elif name in flags:
            options[name] = True
        else:
            options[name] = value if is_given else next(words, "")
    return options, alone
