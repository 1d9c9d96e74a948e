"""Finds arguments of a script that are worth a try, as far as its text shows which ones it takes.

Calls of ``add_argument`` are read, nothing is executed. Suggested are twice and half of the run's value for whole
numbers that are called a batch size or a number of micro batches; other sizes of buckets; bf16 where it is one of the
choices; and switches that are called recomputation, activation checkpointing or compiling: the run is tried with those
that it was without, and without those that it had.
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
PARTS = {"microbatches", "chunks"}
"""Words for the number of parts in which a batch goes through a pipeline."""
BUCKET_MB = 25
"""The size of a bucket that DistributedDataParallel has by itself."""
BF16 = ("bf16", "bfloat16")
SWITCHES = {"recompute", "recomputation", "checkpointing", "compile", "compiled"}


@dataclass(frozen=True, slots=True)
class Worth:
    text: str
    """The text to be added to the arguments of the run; of equal options the last one counts."""
    work: float = 1.0
    """The factor by which a step has more work."""
    without: tuple[str, ...] = ()
    """The words that are left out of the arguments of the run."""


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
    default = named.get("default")
    had = _value(flags, given)
    if had is None and isinstance(default, ast.Constant):
        had = str(default.value)
    number = isinstance(kind, ast.Name) and kind.id in ("int", "float")
    whole = number and had is not None and had.isascii() and had.isdigit() and int(had) > 0
    if whole and words & BATCH and not words & NO_BATCH:
        yield from _twice_and_half(flag, int(had or 0), by_work=True)
    elif whole and words & PARTS:
        yield from _twice_and_half(flag, int(had or 0), by_work=False)
    elif number and "bucket" in words and had is not None and had != str(BUCKET_MB):
        yield Worth(f"{flag} {BUCKET_MB}")
    choices = named.get("choices")
    if isinstance(choices, ast.List | ast.Tuple):
        known = [one.value for one in choices.elts if isinstance(one, ast.Constant)]
        yield from (Worth(f"{flag} {one}") for one in BF16 if one in known and had not in BF16)
    switch = isinstance(action, ast.Constant) and action.value == "store_true"
    if switch and words & SWITCHES:
        used = tuple(one for one in flags if one in given)
        yield Worth(f"without {used[0]}", without=used) if used else Worth(flag)


def _twice_and_half(flag: str, had: int, *, by_work: bool) -> Iterator[Worth]:
    yield Worth(f"{flag} {2 * had}", 2.0 if by_work else 1.0)
    if had % 2 == 0:
        yield Worth(f"{flag} {had // 2}", 0.5 if by_work else 1.0)


def _value(flags: Sequence[str], given: Sequence[str]) -> str | None:
    """The value of the option that was given last."""
    found = None
    for number, word in enumerate(given):
        name, equals, value = word.partition("=")
        if name in flags:
            found = value if equals else next(iter(given[number + 1 :]), None)
    return found
