"""The policy of `--data-shapes`: how large a tensor is whose size follows from values that nobody computed.

The command line checks it, and the ranks follow it. A size is that of one call (of `nonzero`, `unique` ...), between 0
and the most that there can be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from .policy import trace_lines

FORMS = "most, fraction:F (0 to 1) or trace:FILE"
KINDS = MOST, FRACTION, TRACE = "most", "fraction", "trace"
ANY = "*"
"""The name in a trace that stands for all places that it does not name."""


@dataclass(frozen=True, slots=True)
class Size:
    """A size in a trace: a number of elements, or a share of the most elements that there can be."""

    count: int = 0
    share: float | None = None

    def of(self, most: int) -> int:
        return self.count if self.share is None else round(self.share * most)


@dataclass(frozen=True, slots=True)
class ShapePolicy:
    """The policy that decides how large such tensors are."""

    text: str
    """The policy as the user wrote it."""
    fraction: float = 1.0
    """The size where the trace says nothing, as a share of the most that there can be."""
    halves: bool = True
    """True if, where the trace says nothing and integers are compared with a number, the comparison holds for half of
    them.
    """
    sizes: tuple[tuple[str, tuple[Size, ...]], ...] = ()
    """The sizes of a place's calls, in turn, over and over. A place is `file.py:LINE`, the name of an operation, or
    ANY.
    """

    def size(self, places: tuple[str, ...], operation: str, call: int, most: int, *, of_classes: bool = False) -> int:
        """Returns the size for call number `call` (from 0) of an operation, at most `most`. `places`: the lines that
        call it, as path:LINE, the innermost first. `of_classes`: integers are compared with a number, so that an
        element on one side is missing on the other one.
        """
        found = self._find(places, operation)
        if found is not None:
            return min(found[call % len(found)].of(most), most)
        return (most + 1) // 2 if of_classes and self.halves else round(self.fraction * most)

    def _find(self, places: tuple[str, ...], operation: str) -> tuple[Size, ...] | None:
        for place in places:
            for name, sizes in self.sizes:
                if place == name or place.endswith("/" + name):
                    return sizes
        by_name = dict(self.sizes)
        return by_name.get(operation) or by_name.get(ANY)


def parse(text: str) -> ShapePolicy:
    """Reads the option's text. Raises ValueError, which says what is wrong, and OSError if the trace cannot be read."""
    kind, _, rest = text.partition(":")
    if text == MOST:
        return ShapePolicy(text)
    if kind == FRACTION and rest:
        return ShapePolicy(text, fraction=_share(rest), halves=False)
    if kind == TRACE and rest:
        return ShapePolicy(text, sizes=_read_trace(Path(rest)))
    raise ValueError(f"expected {FORMS}")


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise ValueError(f"{text!r} is not a number from 0 to 1")
    return value


def _size(word: str, where: str) -> Size:
    if word.isdecimal() and word.isascii() and len(word) < 16:
        return Size(count=int(word))
    if word.endswith("%"):
        try:
            percent = float(word[:-1])
        except ValueError:
            percent = math.nan
        if 0 <= percent <= 100:
            return Size(share=percent / 100)
    raise ValueError(f"{where}: {word!r} is no size: expected a whole number such as 512, or a share such as 25%")


def _read_trace(path: Path) -> tuple[tuple[str, tuple[Size, ...]], ...]:
    """Reads a trace, which has a line for each place: where, then the sizes of its calls, in turn."""
    found: dict[str, tuple[Size, ...]] = {}
    for where, words in trace_lines(path):
        place, *sizes = words
        if not sizes:
            raise ValueError(f"{where}: expected sizes after the place {place!r}")
        if place in found:
            raise ValueError(f"{where}: {place!r} has sizes already")
        found[place] = tuple(_size(word, where) for word in sizes)
    if not found:
        raise ValueError(f"{path} has no sizes: expected lines of a place (file.py:LINE, nonzero, *) and sizes")
    return tuple(found.items())
