"""Finds the changes that a script makes before it imports packages, by reading its text: a package that depends on them
must not be imported beforehand.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .script_strings import Script, last_name

_HOLDERS = ("environ", "modules", "path")
"""The names that decide about imports: `os.environ`, `sys.modules` and `sys.path`."""
_CHANGING = ("setdefault", "update", "pop", "putenv", "unsetenv", "clear")
_ELSEWHERE = ("load_dotenv", "addsitedir", "find_dotenv")
"""Names of functions that take variables or folders from files."""


@dataclass(slots=True)
class ScriptChanges:
    variables: set[str] = field(default_factory=set)
    """Names of the environment variables that it sets, or beginnings of names that end in `*`."""
    packages: set[str] = field(default_factory=set)
    """Modules that it puts into sys.modules."""
    unknown: bool = False
    """True if it changes more than the text tells, or where packages are found."""


def of(files: Iterable[str]) -> ScriptChanges:
    trees = list(_trees(files))
    script = Script(trees)
    found = ScriptChanges()
    for tree in trees:
        _Reader(found, script, tree).read(tree)
    return found


def _trees(files: Iterable[str]) -> Iterator[ast.Module]:
    for file in files:
        try:
            with open(file, "rb") as source:
                yield ast.parse(source.read())
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue


class _Reader:
    """Notes what one file changes."""

    def __init__(self, found: ScriptChanges, script: Script, tree: ast.Module) -> None:
        self._found = found
        self._script = script
        self._aliases = dict(_aliases(tree))

    def read(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.Delete)):
                for target in node.targets if not isinstance(node, ast.AugAssign) else [node.target]:
                    self._note_target(target, node)
            elif isinstance(node, ast.Call):
                self._note_call(node)

    def _note_target(self, target: ast.expr, statement: ast.AST) -> None:
        if isinstance(target, ast.Subscript):
            self._note(self._holder(target.value), [target.slice])
        elif holder := self._holder(target):  # os.environ |= {...}, sys.path = ...
            strings = list(_strings(statement))
            self._note(holder, strings or [target])

    def _note_call(self, call: ast.Call) -> None:
        name = last_name(call.func)
        if name in _ELSEWHERE:
            self._found.unknown = True
        elif name in ("putenv", "unsetenv"):
            self._note("environ", call.args[:1])
        elif name in (*_CHANGING, "insert", "extend", "remove") and isinstance(call.func, ast.Attribute):
            holder = self._holder(call.func.value)
            self._found.variables |= {each.arg for each in call.keywords if each.arg and holder == "environ"}
            keys: list[ast.expr] = call.args[:1]
            if name == "update":
                keys = [string for argument in call.args for string in _strings(argument)] or keys
            self._note(holder, keys)

    def _note(self, holder: str, keys: Iterable[ast.expr]) -> None:
        """Notes the change of these keys. `holder`: environ, modules or path; anything else is none of ours."""
        if holder == "path":
            self._found.unknown = True
        if holder not in ("environ", "modules"):
            return
        for key in keys:
            strings = self._script.strings(key)
            if strings is None or (holder == "modules" and any("*" in string for string in strings)):
                self._found.unknown = True
            else:
                (self._found.variables if holder == "environ" else self._found.packages).update(strings)

    def _holder(self, node: ast.expr) -> str:
        """Returns which of os.environ, sys.modules and sys.path the expression is, by its last name; "": none."""
        if isinstance(node, ast.Name):
            return self._aliases.get(node.id, "")
        if not isinstance(node, ast.Attribute) or node.attr not in _HOLDERS:
            return ""
        if node.attr == "environ" or not isinstance(node.value, (ast.Name, ast.Attribute)):
            return node.attr
        return node.attr if self._aliases.get(last_name(node.value), last_name(node.value)) == "sys" else ""


def _aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yields the names by which a file knows `sys`, and what `os` and `sys` have that changes imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname, alias.name) for alias in node.names if alias.asname and alias.name == "sys")
        elif isinstance(node, ast.ImportFrom) and node.module in ("os", "sys"):
            yield from ((alias.asname or alias.name, alias.name) for alias in node.names if alias.name in _HOLDERS)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
            holder, of = node.value.attr, last_name(node.value.value)
            if holder == "environ" or (holder in _HOLDERS and of == "sys"):
                yield from ((target.id, holder) for target in node.targets if isinstance(target, ast.Name))


def _strings(node: ast.AST) -> Iterator[ast.expr]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str))
