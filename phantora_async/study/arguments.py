"""Finds arguments of a script that are worth a try, as far as its text shows which ones it takes.

Calls of ``add_argument`` are read, nothing is executed. Suggested are twice and half of the run's value for whole
numbers that are called a batch size; and switches that are called recomputation, activation checkpointing or
compiling, if the run was without them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from formats.files import MOST_SOURCE_NBYTES, read_text

BATCH = {"batch", "batchsize", "microbatch", "mbs", "bs"}
NO_BATCH = {"eval", "evaluation", "val", "valid", "validation", "test", "global", "total", "number", "num", "steps"}
"""Words that exclude a number: with them it does not say how much a rank does at a time."""
SWITCHES = {"recompute", "recomputation", "checkpointing", "compile", "compiled"}


@dataclass(frozen=True, slots=True)
class Worth:
    text: str
    """The text to be added to the arguments of the run; of equal options the last one counts."""
    work: float
    """The factor by which a step has more work."""


def worth_trying(script: Path, given: Sequence[str]) -> list[Worth]:
    """The arguments to try; empty if the script has none of that kind. Raises ValueError if it cannot be read."""
    try:
        tree = ast.parse(read_text(script, MOST_SOURCE_NBYTES, ValueError))
    except (SyntaxError, RecursionError) as error:
        raise ValueError(f"{script}: no Python that can be read: {error}") from None
    return [one for call in ast.walk(tree) if isinstance(call, ast.Call) for one in _of(call, given)]


def _of(call: ast.Call, given: Sequence[str]) -> Iterator[Worth]:
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"):
        return
    flags = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    flag = next((one for one in flags if one.startswith("--")), None)
    if flag is None:
        return
    words = set(re.split(r"[-_.]", flag.strip("-").lower()))
    named = {one.arg: one.value for one in call.keywords}
    kind, action = named.get("type"), named.get("action")
    if isinstance(kind, ast.Name) and kind.id == "int" and words & BATCH and not words & NO_BATCH:
        had = _value(flags, given)
        default = named.get("default")
        if had is None and isinstance(default, ast.Constant):
            had = str(default.value)
        if had is not None and had.isascii() and had.isdigit() and int(had):
            yield Worth(f"{flag} {2 * int(had)}", 2.0)
            if int(had) % 2 == 0:
                yield Worth(f"{flag} {int(had) // 2}", 0.5)
    switch = isinstance(action, ast.Constant) and action.value == "store_true"
    if switch and words & SWITCHES and not set(flags) & set(given):
        yield Worth(flag, 1.0)


def _value(flags: Sequence[str], given: Sequence[str]) -> str | None:
    """The value of the option that was given last."""
    found = None
    for number, word in enumerate(given):
        name, equals, value = word.partition("=")
        if name in flags:
            found = value if equals else next(iter(given[number + 1 :]), None)
    return found
