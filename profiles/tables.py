"""Measured durations of signatures on one GPU, and what they say about signatures nobody measured.

A table is a text file: the line `phantora-costs 1`, then one line per signature: signature, tab, solo ns, and
optionally tab, contended ns. Empty lines and lines that start with `#` are skipped.

A signature that is not in the table takes the correction of its family (`profiles.signature.family_of`): measured
over modelled time of the next shorter and the next longer member, between them linear in the logarithm of modelled
time.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from dataclasses import dataclass, field
from math import exp, log
from pathlib import Path

from profiles.errors import ProfileError
from profiles.signature import parse

HEADER = "phantora-costs 1"
REACH = 4.0  # a member this many times longer or shorter says nothing any more


@dataclass(frozen=True, slots=True)
class Measured:
    solo_ns: int
    contended_ns: int | None


@dataclass(slots=True)
class Table:
    path: Path
    exact: dict[str, Measured]
    _corrections: dict[tuple[str, ...], list[tuple[float, float]]] = field(default_factory=dict)
    """Per family: logarithm of modelled time and of measured over modelled time, sorted."""

    def learn(self, family: tuple[str, ...], measured_ns: float, modelled_ns: float) -> None:
        """Tells what the model says of a measured member; call for each before asking for corrections."""
        point = log(modelled_ns), log(measured_ns / modelled_ns)
        points = self._corrections.setdefault(family, [])
        points.insert(bisect_left(points, point), point)

    def correction(self, family: tuple[str, ...], modelled_ns: float) -> float | None:
        """Factor to apply to the modelled time; None if no member of the family is near."""
        points = self._corrections.get(family, [])
        at = log(modelled_ns)
        index = bisect_left(points, (at, float("-inf")))
        near = [point for point in points[max(index - 1, 0) : index + 1] if abs(point[0] - at) <= log(REACH)]
        if not near:
            return None
        if len(near) == 1 or near[0][0] == near[1][0]:
            return exp(near[0][1])
        (left, low), (right, high) = near
        return exp(low + (high - low) * (at - left) / (right - left))


def load_table(path: str | os.PathLike[str]) -> Table:
    """Raises ProfileError naming file and line for anything malformed, cut short or given twice."""
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: cannot be read: {error}") from error
    if not lines or lines[0].strip() != HEADER:
        raise ProfileError(f"{path}:1: expected the line {HEADER!r}")
    exact: dict[str, Measured] = {}
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip() or line.startswith("#"):
            continue
        signature, measured = _entry(f"{path}:{number}", line)
        if signature in exact:
            raise ProfileError(f"{path}:{number}: signature given twice")
        exact[signature] = measured
    return Table(path, exact)


def _entry(where: str, line: str) -> tuple[str, Measured]:
    if not line.endswith("\n"):
        raise ProfileError(f"{where}: the file ends within a line")
    signature, *numbers = line.rstrip("\n").split("\t")
    if len(numbers) not in (1, 2) or not all(one.isdecimal() and int(one) > 0 for one in numbers):
        raise ProfileError(
            f"{where}: expected signature, tab, solo ns and optionally tab, contended ns, as positive integers"
        )
    try:
        parse(signature)
    except ProfileError as error:
        raise ProfileError(f"{where}: signature {signature[:200]!r}: {error}") from None
    solo, contended = int(numbers[0]), int(numbers[1]) if len(numbers) == 2 else None
    if contended is not None and contended < solo:
        raise ProfileError(f"{where}: contended ns: {contended} is less than solo ns, {solo}")
    return signature, Measured(solo, contended)
