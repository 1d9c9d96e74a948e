"""The published hangs, what a message about each must name, and how a run is judged by it."""

from __future__ import annotations

import enum
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS, WELL, MANY = HERE / "programs", HERE / "well", HERE / "many"
MANY_RANKS = 4
"""The ranks of each program in ``many``."""
ENDED = "ended"
"""In place of a line: the rank had ended, or left the script, when others waited for it."""
STUCK = 75
"""The exit code of a run whose ranks wait for ever."""


class Verdict(enum.StrEnum):
    """How well a run has told what is wrong with its program."""

    RIGHT = "found"
    RACE = "found: may hang"
    ALONE = "found, but not where the others wait"
    WRONG = "found, but the culprit is not named"
    MISSED = "not found"


@dataclass(frozen=True, slots=True)
class Hang:
    """One program, and what is expected."""

    name: str
    issue: str
    """``owner/repository#number``."""
    ranks: int
    gpus: str
    """What happens on GPUs."""
    guilty: dict[int, str]
    """The ranks that a message must name, each with the letter of its line, or ``ended``."""
    waits: str
    """The letter of the line where others wait; "" if all are guilty."""
    options: tuple[str, ...] = ()
    """How phantora-async runs it."""

    @property
    def program(self) -> Path:
        return PROGRAMS / f"{self.name}.py"

    @property
    def link(self) -> str:
        """The address of the report. GitHub leads from an issue's address to a pull request with that number."""
        repository, _, number = self.issue.partition("#")
        return f"https://github.com/{repository}/issues/{number}"

    def judge(self, exit_code: int, output: str) -> Verdict:
        """`output`: everything that the run has printed."""
        _, found, message = output.partition("error: ")
        race = not found or exit_code == 0
        lines = races(output) if race else message.splitlines()
        if not lines:
            return Verdict.MISSED
        named = all(_names(lines, rank, self._place(letter)) for rank, letter in self.guilty.items())
        waits = not self.waits or any(_has(line, self._place(self.waits)) for line in lines)
        if not named:
            return Verdict.WRONG
        if not waits:
            return Verdict.ALONE
        return Verdict.RACE if race else Verdict.RIGHT

    def _place(self, letter: str) -> str:
        """The line with this letter, as messages show it: ``name.py:12``; ``ended`` as it is."""
        if letter == ENDED:
            return ENDED
        lines = enumerate(self.program.read_text().splitlines(), start=1)
        (number,) = (number for number, line in lines if line.endswith(f"  # {letter}"))
        return f"{self.program.name}:{number}"


def hangs() -> list[Hang]:
    """All published hangs, in the order of their file."""
    table = tomllib.loads((HERE / "published.toml").read_text())
    return [
        Hang(
            name,
            row["issue"],
            row["ranks"],
            row["gpus"],
            {int(rank): letter for rank, letter in row["guilty"].items()},
            row.get("waits", ""),
            tuple(row.get("options", ())),
        )
        for name, row in table.items()
    ]


def good_programs() -> dict[Path, int]:
    """The programs that end well, each with its number of ranks, which the end of its docstring says."""
    return {
        path: int(re.findall(r"(\d+) ranks\.\"\"\"", path.read_text())[0])
        for path in sorted(WELL.glob("*.py"))
        if path.stem != "job"
    }


def many_programs() -> list[Path]:
    """The programs of which each is many cases that end well."""
    return [path for path in sorted(MANY.glob("*.py")) if path.stem != "cases"]


def races(output: str) -> list[str]:
    """The lines in which a run that ends well says that its program may hang."""
    return re.findall(r"^phantora-async: .*\bthis may hang\b.*$", output, re.MULTILINE)


def cases_done(output: str) -> int:
    """The number of cases whose end a program of ``many`` has printed."""
    return len(re.findall(r"^case \w+$", output, re.MULTILINE))


def _names(lines: list[str], rank: int, place: str) -> bool:
    """Returns true if a line of the message names the rank together with the place."""
    if place == ENDED:
        return any(rank in ranks for line in lines for ranks in map(_ranks, re.findall(_ENDED, line)))
    # Who is in a communicator, or at the ends of a message, is not who is named.
    bare = (_MEMBERS.sub("", line) for line in lines)
    return any(_has(line, place) and any(rank in ranks for ranks in map(_ranks, _RANKS.findall(line))) for line in bare)


def _has(line: str, place: str) -> bool:
    return re.search(rf"\b{re.escape(place)}(?!\d)", line) is not None


_MEMBERS = re.compile(r"communicator of ranks [\d,-]+|from rank \d+ to rank \d+|root rank \d+|(?:to|from) rank \d+")
_RANKS = re.compile(r"\branks? (\d[\d,-]*)")
_ENDED = r"\branks? (\d[\d,-]*)(?: \(server \d+\))? (?:has |have )?ended"


def _ranks(text: str) -> set[int]:
    """The ranks that a text like ``0-2,5`` names."""
    found: set[int] = set()
    for part in text.rstrip(",-").split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
