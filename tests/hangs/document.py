"""The table of published hangs in docs/data/hangs.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .published import Hang, Verdict

PATH = Path(__file__).parents[2] / "docs" / "data" / "hangs.md"
HEAD = """# Published hangs

Each of these hangs was reported by somebody who had it on GPUs. The programs in `tests/hangs/programs/` are small ones
of our own that do the same. What a message must name was written down before a program was run for the first time: the
guilty rank with its line (or that it had ended), and the line where the others wait. `python -m tests.hangs --write`
runs them all and writes this page. The seconds are processor time of the whole command.

"""


@dataclass(frozen=True, slots=True)
class Row:
    """The outcome for one program."""

    name: str
    hang: Hang | None
    """None: the program ends well."""
    ranks: int
    verdict: str
    processor_s: float


def render(rows: Sequence[Row]) -> str:
    """The whole page."""
    published = [row for row in rows if row.hang is not None]
    well = [row for row in rows if row.hang is None]
    counts = Counter(row.verdict for row in published)
    text = HEAD
    right = counts[Verdict.RIGHT] + counts[Verdict.ALONE]
    text += (
        f"Of {len(published)} hangs, {right} are found with the guilty rank and its line (in {counts[Verdict.ALONE]} "
    )
    text += "of them the line where the others wait is not named); "
    text += f"{counts[Verdict.WRONG]} end with a message that does not name it, and {counts[Verdict.MISSED]} are not "
    text += f"found. They take {_seconds(published)} each.\n\n"
    text += "| program | report | ranks | on GPUs | here | s |\n|---|---|---:|---|---|---:|\n"
    for row in published:
        hang = row.hang
        assert hang is not None
        text += f"| {row.name} | [{hang.issue}]({hang.link}) | {row.ranks} | {hang.gpus} | {row.verdict} | "
        text += f"{row.processor_s:.0f} |\n"
    good = sum(row.verdict == "ends well" for row in well)
    text += f"\n## Programs that end well\n\n{good} of {len(well)} programs that look like hangs end well, as they do "
    text += f"on GPUs ({_seconds(well)} each).\n\n"
    text += "| program | ranks | here | s |\n|---|---:|---|---:|\n"
    for row in well:
        text += f"| {row.name} | {row.ranks} | {row.verdict} | {row.processor_s:.0f} |\n"
    return text


def _seconds(rows: Sequence[Row]) -> str:
    seconds = sorted(row.processor_s for row in rows)
    return f"{seconds[0]:.0f} to {seconds[-1]:.0f} s" if seconds else "no time"
