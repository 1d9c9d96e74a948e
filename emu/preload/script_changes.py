"""Finds the changes that a script makes before it imports packages, by reading its text: a package that depends on them
must not be imported beforehand.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_CHANGING = ("setdefault", "update", "pop", "putenv", "unsetenv", "clear")
_ELSEWHERE = ("load_dotenv", "addsitedir", "find_dotenv")
"""Names of functions that take variables or folders from files."""


@dataclass(slots=True)
class ScriptChanges:
    variables: set[str] = field(default_factory=set)
    """Names of the environment variables that it sets."""
    packages: set[str] = field(default_factory=set)
    """Modules that it puts into sys.modules."""
    unknown: bool = False
    """True if it changes more than the text tells, or where packages are found."""


def of(files: Iterable[str]) -> ScriptChanges:
    found = ScriptChanges()
    for file in files:
        try:
            with open(file, "rb") as source:
                tree = ast.parse(source.read())
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.Delete)):
                for target in node.targets if not isinstance(node, ast.AugAssign) else [node.target]:
                    _note_target(found, target, node)
            elif isinstance(node, ast.Call):
                _note_call(found, node)
    return found


def _note_target(found: ScriptChanges, target: ast.expr, statement: ast.AST) -> None:
    if isinstance(target, ast.Subscript):
        _note(found, _name(target.value), [target.slice])
    elif _name(target) in ("environ", "modules", "path"):  # os.environ |= {...}, sys.path = ...
        strings = list(_strings(statement))
        _note(found, _name(target), strings or [target])


def _note_call(found: ScriptChanges, call: ast.Call) -> None:
    name = _name(call.func)
    if name in _ELSEWHERE:
        found.unknown = True
    elif name in ("putenv", "unsetenv"):
        _note(found, "environ", call.args[:1])
    elif name in (*_CHANGING, "insert", "extend", "remove") and isinstance(call.func, ast.Attribute):
        holder = _name(call.func.value)
        found.variables |= {each.arg for each in call.keywords if each.arg and holder == "environ"}
        keys: list[ast.expr] = call.args[:1]
        if name == "update":
            keys = [string for argument in call.args for string in _strings(argument)] or keys
        _note(found, holder, keys)


def _note(found: ScriptChanges, holder: str, keys: Iterable[ast.expr]) -> None:
    """Notes the change of these keys. `holder`: environ, modules or path; anything else is none of ours."""
    if holder == "path":
        found.unknown = True
    if holder not in ("environ", "modules"):
        return
    for key in keys:
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            (found.variables if holder == "environ" else found.packages).add(key.value)
        else:
            found.unknown = True


def _strings(node: ast.AST) -> Iterator[ast.expr]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str))


def _name(node: ast.expr) -> str:
    """Returns the last name of `a.b.c`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
