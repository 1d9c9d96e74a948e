"""Arguments of a script that are worth a try, as far as its text says what it takes.

Read are calls of ``add_argument``, nothing is executed: whole numbers that are called a batch size, twice and half of
what the run had; switches that are called recomputation, activation checkpointing or compiling, if the run was without.
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
"""Of these a rank does no more at a time."""
SWITCHES = {"recompute", "recomputation", "checkpointing", "compile", "compiled"}


@dataclass(frozen=True, slots=True)
class Worth:
    text: str
    """To be added to the arguments of the run; the last one counts."""
    work: float
    """By which factor a step has more to do."""


def worth_trying(script: Path, given: Sequence[str]) -> list[Worth]:
    """Empty if the script says nothing of that kind. Raises ValueError if it cannot be read."""
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
    """The last one that was given."""
    found = None
    for number, word in enumerate(given):
        name, equals, value = word.partition("=")
        if name in flags:
            found = value if equals else next(iter(given[number + 1 :]), None)
    return found
