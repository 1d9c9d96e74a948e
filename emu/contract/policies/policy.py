"""The parts that policies have in common: the text of an option, its kind, and the lines of a trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy that an option names: KIND, or KIND:MORE."""

    text: str
    """The policy as the user wrote it."""
    kind: str


def trace_lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yields the lines of a trace: where each is, and its words, separated by blanks or commas. `#` begins a comment;
    lines without words are left out.
    """
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        words = line.partition("#")[0].replace(",", " ").split()
        if words:
            yield f"{path}:{number}", words
