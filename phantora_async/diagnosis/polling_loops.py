"""Finds the loops in which ranks look for something and sleep in turns, from their stacks and the program's text."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from emu.contract import installed
from formats.files import MOST_SOURCE_NBYTES, read_bytes
from phantora_async.ingest.call_sites import Line
from phantora_async.wording import named


def describe_loops(ranks: Iterable[int], lines: Callable[[int], Sequence[Line]]) -> str:
    """Lines like ``  ranks 1-3: in turns look and sleep in the loop at train.py:17``. `lines`: a rank's stack,
    innermost line first. A rank is left out if no text of its program is here.
    """
    groups: dict[str, list[int]] = {}
    for rank in ranks:
        if (loop := innermost_loop(lines(rank))) is not None:
            groups.setdefault(str(loop), []).append(rank)
    return "\n".join(f"  {named(found)}: in turns look and sleep in the loop at {at}" for at, found in groups.items())


def innermost_loop(lines: Sequence[Line]) -> Line | None:
    """Returns the line of the innermost ``while`` or ``for`` that the stack is in; None if there is none, or no text
    that has these lines.
    """
    for line in lines:
        if line.file.startswith(("<", f"{installed.EMU}/")):
            continue
        try:
            tree = ast.parse(read_bytes(Path(line.file), MOST_SOURCE_NBYTES))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # it is on another machine, or was changed since; a rank may name any file, a pipe for example
        around = [
            node.lineno
            for node in ast.walk(_function(tree, line.line))
            if isinstance(node, ast.While | ast.For | ast.AsyncFor)
            and node.lineno <= line.line <= (node.end_lineno or 0)
        ]
        if around:
            return Line(line.file, max(around), line.function)
    return None


def _function(tree: ast.Module, line: int) -> ast.AST:
    """Returns the innermost function that has the line, or the module: a loop around a function's definition is not one
    that the line runs in.
    """
    found: ast.AST = tree
    for node in ast.walk(tree):  # outer ones come first
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or 0):
            found = node
    return found
