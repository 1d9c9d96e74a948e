"""Formats ranks, paths, times and bytes for messages, the status line and the report."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from signal import Signals
from typing import Any

MOST_PARTS = 16
"""The most parts (single ranks and ranges) in a text that names ranks."""


EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
"""The environment variable that helps where memory is fragmented."""
GROWS = "allocated memory grows"
"""The beginning of ``growth_text``."""


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
    """``rank 3`` or ``ranks 0-7``; of many parts the first ones and the last: ``ranks 0,3,4-9,...,4095``."""
    parts = compact(ranks).split(",")
    text = ",".join(parts if len(parts) <= MOST_PARTS else [*parts[: MOST_PARTS - 2], "...", parts[-1]])
    return f"rank {text}" if text.isdecimal() else f"ranks {text}"


_NOT_PRINTED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Matches control characters except tab and newline, characters that reverse or hide text, and halves of surrogate
pairs.
"""


def printable(text: str) -> str:
    """The text without anything that a terminal would obey: ``\\x1b[31m`` for the escape that turns text red."""
    return _NOT_PRINTED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


_MARKED = re.compile(r"[\\`*\[\]|~<>&@]|(?<!\w)_|_(?!\w)|(?<=:)//")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;", "//": "&#47;/"}
"""Replacements for HTML, and for what makes links or notifies people where the text is shown."""


def markdown(text: str) -> str:
    """The text within a line of a Markdown document, or in a cell of a table, as nothing but text."""

    def escaped(found: re.Match[str]) -> str:
        return _ENTITIES.get(found[0]) or f"{found[0][:-1]}\\{found[0][-1]}"

    return _MARKED.sub(escaped, printable(" ".join(text.split())))


def markdown_code(text: str) -> str:
    """The text as code in a cell of a table: between more backticks than it has in a row."""
    text = printable(" ".join(text.split())).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}" if text else ""


def printable_json(text: str) -> str:
    """A JSON document, of the same meaning, without anything that a terminal would obey."""
    return _NOT_PRINTED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def utf8(value: Any) -> Any:
    """A JSON value without halves of surrogate pairs, which stand for bytes of a path that are not UTF-8."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, Mapping):
        return {utf8(key): utf8(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [utf8(one) for one in value]
    return value


LONGEST_LINE = 1000


def short_lines(text: str) -> str:
    """The text with what is too long for a terminal left out of the middle of its lines."""
    return "\n".join(map(_short_line, text.split("\n")))


def _short_line(line: str) -> str:
    if len(line) <= LONGEST_LINE:
        return line
    return f"{line[: LONGEST_LINE // 2]} [{len(line) - LONGEST_LINE:,} characters] {line[-LONGEST_LINE // 2 :]}"


UNITS_NS = {"h": 3_600_000_000_000, "m": 60_000_000_000, "s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def duration(for_ns: int) -> str:
    """A duration as options take it, in the largest unit of which it is a multiple: ``90s``, ``2m``, ``500ms``."""
    unit = next(unit for unit, ns in UNITS_NS.items() if for_ns % ns == 0)
    return f"{for_ns // UNITS_NS[unit]}{unit}"


def seconds(for_ns: int) -> str:
    """A duration with at least three significant digits: ``1.234 s``, ``12.34 ms``, ``456.7 µs``."""
    if for_ns >= 1_000_000_000:
        return f"{for_ns / 1e9:.3f} s"
    if for_ns >= 1_000_000:
        return f"{for_ns / 1e6:.{2 if for_ns < 100_000_000 else 1}f} ms"
    return f"{for_ns / 1e3:.1f} µs"


def launches_text(each: float) -> str:
    """Launches of a step and GPU, a mean: ``24``, ``1,000,000``, ``0.5``."""
    return f"{each:,.0f}" if each == round(each) or each >= 100 else f"{each:,.1f}"


def gib(nbytes: float) -> str:
    return f"{nbytes / 2**30:.2f} GiB"


def size(nbytes: float) -> str:
    """A number of bytes in the largest unit that it reaches: ``30.51 GiB``, ``20.0 MiB``, ``4.0 KiB``, ``512 B``."""
    if nbytes >= 2**30:
        return gib(nbytes)
    for unit, of_it in (("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= of_it:
            return f"{nbytes / of_it:.1f} {unit}"
    return f"{nbytes:.0f} B"


def short(path: str | Path) -> str:
    """The path relative to the working directory if it is below it, else unchanged."""
    return str(path).removeprefix(os.getcwd().rstrip("/") + "/")


def signal_in_words(number: int) -> str:
    """The signal's name, and its meaning if a limit of this shell has sent it."""
    name = Signals(number).name if number in set(Signals) else f"signal {number}"
    return f"{name} ({_LIMITS[number]})" if number in _LIMITS else name


_LIMITS: dict[int, str] = {
    Signals.SIGXCPU: "it has used the processor time that `ulimit -t` allows",
    Signals.SIGXFSZ: "it has written a larger file than `ulimit -f` allows",
}


def growth_text(growth: Mapping[str, Any]) -> str:
    """Says how memory grows. `growth`: ``memory.growth`` of a report."""
    nbytes, steps = size(growth["nbytes"]), growth["steps"]
    by = f"{nbytes} in each of the last {steps} steps" if growth["equal"] else f"{nbytes} a step in the last {steps}"
    op = f" by {growth['op']}" if growth["op"] else ""
    origin = f", asked for{op} at {growth['site']}," if growth["site"] else f", asked for{op}," if op else ""
    return f"{GROWS} by {by}{origin} and fills the GPU after {growth['steps_left']:,} more"
