"""Reads the table [search] of a study: trials that a sampler chooses one after the other, by the results of those
before.

[search]
sampler = "tpe"                          # or "nsga2", "random"
trials = 60
seed = 0
at_a_time = 4                            # how many are chosen before one of them is known
[search.ranges]
world_size = [8, 16, 32]                 # one of these
"--batch" = { from = 1, to = 64 }        # whole numbers; also step = 2, log = true
"--lr" = { from = 1e-4, to = 0.1, log = true }
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, prod
from typing import Any

from formats.toml import FileTable
from formats.values import shown

TPE, NSGA2, RANDOM = "tpe", "nsga2", "random"
SAMPLERS = (TPE, NSGA2, RANDOM)
TRIALS, AT_A_TIME = 50, 4
MOST_TRIALS = 100_000
Choices = tuple[Any, ...]
Chosen = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Range:
    low: float
    high: float
    step: float | None = None
    log: bool = False

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def size(self) -> float:
        step = self.step or (1 if self.whole else None)
        return inf if step is None else (self.high - self.low) // step + 1

    @property
    def ends(self) -> Choices:
        return (self.low, self.high)


@dataclass(frozen=True, slots=True)
class Search:
    sampler: str
    trials: int
    seed: int
    at_a_time: int
    ranges: Mapping[str, Range | Choices]

    @property
    def size(self) -> float:
        """The number of combinations; infinite if a number is not whole."""
        return prod(one.size if isinstance(one, Range) else len(one) for one in self.ranges.values())

    def all(self) -> Iterator[Chosen]:
        """Yields all combinations, if their number is finite."""
        values = [_steps(one) if isinstance(one, Range) else one for one in self.ranges.values()]
        for chosen in itertools.product(*values):
            yield dict(zip(self.ranges, chosen, strict=True))

    def corners(self) -> Iterator[Chosen]:
        """Yields each choice and each end of a range once, with the first choice of the others."""
        values = {key: one.ends if isinstance(one, Range) else one for key, one in self.ranges.items()}
        first = {key: one[0] for key, one in values.items()}
        yield first
        for key, choices in values.items():
            for one in choices[1:]:
                yield first | {key: one}


def _steps(one: Range) -> list[float]:
    step = one.step or 1
    return [one.low + number * step for number in range(int(one.size))]


def read_search(top: FileTable) -> tuple[Search, FileTable]:
    """Reads the search, and returns it with the table of its ranges."""
    table = top.table("search")
    sampler = table.text("sampler", TPE, choices=SAMPLERS)
    trials = table.integer("trials", TRIALS, least=1, most=MOST_TRIALS)
    seed = table.integer("seed", 0, most=(1 << 32) - 1)
    at_a_time = table.integer("at_a_time", AT_A_TIME, least=1, most=1024)
    ranges = table.table("ranges")
    if not ranges.keys():
        raise ranges.wrong(ranges.name, "nothing to choose from")
    read = {key: _range(ranges, key) for key in ranges.keys()}  # noqa: SIM118 - a table of a file
    return Search(sampler, trials, seed, at_a_time, read), ranges


def _range(ranges: FileTable, key: str) -> Range | Choices:
    value = ranges.value(key)
    if isinstance(value, list) and value:
        return tuple(value)
    if not isinstance(value, dict):
        raise ranges.error(key, f"expected a list, or {{ from = 1, to = 64 }}, found {shown(value)}")
    for name, one in value.items():
        good = isinstance(one, bool) if name == "log" else type(one) in (int, float) and abs(one) <= 1e15
        if name not in ("from", "to", "step", "log") or not good:
            raise ranges.error(key, f"expected numbers `from`, `to`, `step`, and log = true, found {name} = {one!r}")
    if "from" not in value or "to" not in value or not value["from"] < value["to"]:
        raise ranges.error(key, "expected numbers `from` and `to`, `to` being the larger one")
    found = Range(value["from"], value["to"], value.get("step"), value.get("log", False))
    if found.log and (found.low <= 0 or found.step is not None):
        raise ranges.error(key, "log = true goes with `from` above 0 and without `step`")
    if found.step is not None and (not 0 < found.step <= found.high - found.low or (found.whole and found.step % 1)):
        raise ranges.error(key, "expected a `step` above 0 that fits between `from` and `to`")
    return found
