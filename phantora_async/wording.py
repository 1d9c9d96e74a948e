"""How messages, the status line and the report write ranks and paths."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path


def compact(ranks: Iterable[int]) -> str:
    """``0-7,16`` for any set of ranks; ``0-56:8`` where they differ by equal steps."""
    numbers = sorted(set(ranks))
    if len(numbers) > 2 and numbers[1] - numbers[0] > 1:
        step = numbers[1] - numbers[0]
        if numbers == list(range(numbers[0], numbers[-1] + 1, step)):
            return f"{numbers[0]}-{numbers[-1]}:{step}"
    parts: list[str] = []
    start = 0
    for place, number in enumerate(numbers):
        if place + 1 == len(numbers) or numbers[place + 1] != number + 1:
            parts.append(str(number) if place == start else f"{numbers[start]}-{number}")
            start = place + 1
    return ",".join(parts)


def named(ranks: Iterable[int]) -> str:
    """``rank 3`` or ``ranks 0-7``"""
    text = compact(ranks)
    return f"rank {text}" if text.isdecimal() else f"ranks {text}"


_NOT_PRINTED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters but tab and newline, what reverses or hides text, and halves of surrogate pairs."""


def printable(text: str) -> str:
    """The text without anything that a terminal would obey: ``\\x1b[31m`` for the escape that turns text red."""
    return _NOT_PRINTED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


UNITS_NS = {"h": 3_600_000_000_000, "m": 60_000_000_000, "s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def duration(for_ns: int) -> str:
    """As options take it, in the largest unit of which it is a multiple: ``90s``, ``2m``, ``500ms``."""
    unit = next(unit for unit, ns in UNITS_NS.items() if for_ns % ns == 0)
    return f"{for_ns // UNITS_NS[unit]}{unit}"


def short(path: str | Path) -> str:
    """The path relative to the working directory if it is below it, else unchanged."""
    return str(path).removeprefix(os.getcwd().rstrip("/") + "/")
