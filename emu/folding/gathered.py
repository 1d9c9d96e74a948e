"""Objects gathered from ranks that have no process are their representatives': so a script that checks them itself
finds fewer hosts, ranks or values than there are ranks.

Such a check ends with an exception of the script's own, which looks like an error of the script's. Here it is found
out: the line that raised it, or the condition around it, uses what has been gathered. Values are followed by their
identity from frame to frame, and within a function by the names to which they are assigned.
"""

from __future__ import annotations

import ast
import functools
import linecache
import traceback
from collections import deque
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ..contract.folding import CannotBePlayed
from ..interpreter.code_owner import Owner, owner_of
from .ranks import FoldedRanks

MOST_GATHERS = 16
"""The number of gathers whose objects are remembered: the latest."""
MOST_LEAVES = 10_000
"""The number of values within a gather's objects that are looked at."""
_SMALL_NUMBERS = range(-5, 257)
"""The numbers for each of which Python has one object."""
_FILLING = frozenset(("append", "add", "extend", "update", "insert", "setdefault"))
"""Names of methods that put what they get into their object."""


class _Gather(NamedTuple):
    site: str
    """The place of the call, ``train.py:12``."""
    output: list[Any]
    played: int
    """The number of ranks whose objects are their representatives'."""


class Gathered:
    def __init__(self, ranks: FoldedRanks) -> None:
        self._ranks = ranks
        self._latest: deque[_Gather] = deque(maxlen=MOST_GATHERS)

    def noting(self, real: Any) -> Any:
        """Wraps `all_gather_object`, whose first argument is the output, or `gather_object`, whose second one is."""
        place, name = (0, "object_list") if real.__name__ == "all_gather_object" else (1, "object_gather_list")

        @functools.wraps(real)
        def gather(*arguments: Any, **options: Any) -> Any:
            result = real(*arguments, **options)
            output = options.get(name, arguments[place] if len(arguments) > place else None)
            if isinstance(output, list):
                self.note(output, options.get("group", arguments[2] if len(arguments) > 2 else None))
            return result

        return gather

    def note(self, output: list[Any], group: Any) -> None:
        """Remembers what a gather has written. What this calls is left out of the program's host time
        (`frame_counter`).
        """
        from torch.distributed import get_process_group_ranks
        from torch.distributed import group as groups

        members = tuple(get_process_group_ranks(group or groups.WORLD))
        self.remember(output, len(members) - self._ranks.processes(members))

    def remember(self, output: list[Any], played: int) -> None:
        """Remembers the gathered objects. `played`: how many of them are others' than those of the ranks that they
        stand for.
        """
        if played:
            frames = traceback.walk_stack(None)  # the innermost first
            site = next((_site(frame, line) for frame, line in frames if _is_users(frame)), "")
            self._latest.append(_Gather(site, output, played))

    def explains(self, error: BaseException) -> CannotBePlayed | None:
        """Returns an error as the end of a folded run, if what raised it uses gathered objects; else None."""
        known = {number: gather for gather in self._latest for number in _identities(gather.output)}
        found = _culprit(error, known) if known else None
        if found is None:
            return None
        gather, site = found
        return CannotBePlayed(
            f"{type(error).__name__} at {site}, which uses objects that were gathered at {gather.site}: those of "
            f"{gather.played:,} ranks without processes are their representatives'"
        )


def _is_users(frame: FrameType) -> bool:
    return owner_of(frame.f_code.co_filename) is Owner.USER


def _site(frame: FrameType, line: int) -> str:
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{line}"


def _identities(output: list[Any]) -> set[int]:
    """Returns the identities of the list, of its objects, and of what these hold."""
    found = {id(output)}
    left: deque[Any] = deque(output)
    while left and len(found) < MOST_LEAVES:
        one = left.popleft()
        if id(one) in found or _is_shared(one):
            continue
        found.add(id(one))
        if isinstance(one, dict):
            left.extend(one.values())
        elif isinstance(one, list | tuple | set | frozenset):
            left.extend(one)
    return found


def _is_shared(value: Any) -> bool:
    """Tells whether equal values may be one object."""
    if isinstance(value, int):
        return isinstance(value, bool) or value in _SMALL_NUMBERS
    if isinstance(value, str | bytes):
        return len(value) < 2
    return value is None or value == () or isinstance(value, type)


def _gather_of(value: Any, known: dict[int, _Gather]) -> _Gather | None:
    """Returns the gather that the value, or one of its first elements, comes from."""
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return next((known[id(one)] for one in [*value][:64] if id(one) in known), None)
    return None


# ---- the program's text ----------------------------------------------------------------------------------------------


def _culprit(error: BaseException, known: dict[int, _Gather]) -> tuple[_Gather, str] | None:
    """Returns the gather, and the place in the user's text that used its objects last before the error."""
    handed: dict[str, _Gather] = {}
    found: tuple[_Gather, str] | None = None
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_users(frame)]
    for at, (frame, line) in enumerate(frames):
        function = _function_at(frame.f_code)
        if function is None:
            return None
        names = {**_by_identity(frame, known), **handed}
        _follow(function, names)
        used = [used for part in _decisive(function, line) if (used := _used(part, names)) is not None]
        found = (used[0], _site(frame, line)) if used else None
        handed = _handed(function, line, names, frames[at + 1][0].f_code) if at + 1 < len(frames) else {}
    return found


def _function_at(code: CodeType) -> ast.AST | None:
    """Returns the text of the code's function, or of its module; None if it cannot be read."""
    text = "".join(linecache.getlines(code.co_filename))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    if code.co_name == "<module>" or not text:
        return tree if text else None
    functions = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name == code.co_name
        and min([node.lineno, *(one.lineno for one in node.decorator_list)]) == code.co_firstlineno
    )
    return next(functions, None)


def _by_identity(frame: FrameType, known: dict[int, _Gather]) -> dict[str, _Gather]:
    code = frame.f_code
    values = {name: frame.f_globals[name] for name in code.co_names if name in frame.f_globals} | frame.f_locals
    return {name: gather for name, value in values.items() if (gather := _gather_of(value, known)) is not None}


def _used(node: ast.AST, names: dict[str, _Gather]) -> _Gather | None:
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and one.id in names:
            return names[one.id]
    return None


def _follow(function: ast.AST, names: dict[str, _Gather]) -> None:
    """Adds names that are computed from these."""
    grown = -1
    while grown != len(names):
        grown = len(names)
        for node in ast.walk(function):
            for source, target in _flows(node):
                gather = _used(source, names)
                if gather is not None:
                    for one in ast.walk(target):
                        if isinstance(one, ast.Name):
                            names.setdefault(one.id, gather)


def _flows(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yields pairs of an expression and what gets its value."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from ((value, target) for target in targets)
        case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.AugAssign(target=target, value=value):
            yield value, target
        case ast.NamedExpr(target=target, value=value):
            yield value, target
        case ast.For(target=target, iter=source) | ast.comprehension(target=target, iter=source):
            yield source, target
        case ast.Call(func=ast.Attribute(value=ast.Name() as target, attr=name), args=arguments) if name in _FILLING:
            yield from ((argument, target) for argument in arguments)


def _decisive(function: ast.AST, line: int) -> Iterator[ast.AST]:
    """Yields the nodes that decide whether the line raises: its statement, and the conditions around it."""
    for node in ast.walk(function):
        if not isinstance(node, ast.stmt) or not node.lineno <= line <= (node.end_lineno or node.lineno):
            continue
        match node:
            case ast.If(test=test) | ast.While(test=test):
                yield test
            case ast.For(iter=source):
                yield source
            case ast.Match(subject=subject):
                yield subject
            case ast.With(items=items):
                yield from (item.context_expr for item in items)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Try():
                pass
            case _:
                yield node


def _handed(function: ast.AST, line: int, names: dict[str, _Gather], to: CodeType) -> dict[str, _Gather]:
    """Returns the parameters of the called function to which the line passes gathered objects, each with its gather."""
    found: dict[str, _Gather] = {}
    for part in _decisive(function, line):
        for call in ast.walk(part):
            if not isinstance(call, ast.Call):
                continue
            called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if called != to.co_name:
                continue
            own = to.co_varnames[: to.co_argcount]
            own = own[1:] if own[:1] == ("self",) else own
            given = [*zip(own, call.args, strict=False), *((one.arg, one.value) for one in call.keywords if one.arg)]
            for name, value in given:
                if (gather := _used(value, names)) is not None:
                    found[name] = gather
    return found
