"""How messages, the status line and the report write ranks and paths."""

from __future__ import annotations

import os
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


def short(path: str | Path) -> str:
    """The path relative to the working directory if it is below it, else unchanged."""
    return str(path).removeprefix(os.getcwd().rstrip("/") + "/")
