"""A study, in TOML:

tokens_per_step = "4096 * batch * world_size"   # of all GPUs; else what the script logs
only = ["world_size % tp == 0"]                 # trials for which all of this holds
objectives = ["time", "memory", "money"]        # also: energy, mfu, tokens/s
tokens = "15T"                                  # of the whole job: time, money and energy are of it
deadline = "30d"                                # for the whole job; also max_money = 2e6, goodput = "93%"

[run]                                           # what all trials share
script = "train.py"                             # the options of `phantora-async run`, named as in the Python API
max_memory = "76GiB"                            # limits: a trial that breaks one is told, and not compared

[grid]                                          # all combinations are trials
world_size = [8, 16]
"--batch" = [1, 2]                              # an argument of the script; true, false: with and without it
"training.batch=" = [1, 2]                      # the same, as training.batch=1
"$OMP_NUM_THREADS" = ["1", "8"]                 # a variable of the environment
nccl = ["", "NCCL_ALGO=Ring NCCL_PROTO=Simple"] # as in a replay; also set_network, slow_gpu

[search]                                        # in place of [grid]: see search_file.py

[[trial]]                                       # more of them, each by itself
"--batch" = 3
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from formats.toml import FileTable, Source, read_toml
from formats.values import shown
from phantora_async.config import resolve
from phantora_async.errors import UsageError
from phantora_async.study.trials.goal import Goal, read_goal
from phantora_async.study.trials.search_file import Search, read_search
from phantora_async.study.trials.trial import Trial
from phantora_async.study.trials.trial_reader import TrialReader

MOST_TRIALS = 100_000
MOST_COUNTED = 500
"""The most combinations of a search that are counted beforehand."""
EXAMPLE = "docs/sweep.md has an example"
NO_TRIALS = "no trials: neither [grid] nor [[trial]] nor [search] has any"


@dataclass(frozen=True, slots=True)
class Searching:
    search: Search
    make: Callable[[Mapping[str, Any]], Trial | None]
    """Makes a trial from the values that a search chooses; None: `only` does not hold."""
    corners: Sequence[Trial]
    """Trials to which the search may come."""
    different: int | None
    """The number of different trials; None: too many to be counted."""

    @property
    def wanted(self) -> int:
        return min(self.search.trials, self.different or self.search.trials)


@dataclass(frozen=True, slots=True)
class Study:
    trials: list[Trial]
    """The trials, without those that a search will choose."""
    goal: Goal
    searching: Searching | None = None


def read(study: str | os.PathLike[str] | Mapping[str, Any]) -> Study:
    """A file, or what one would hold. Raises UsageError for the first thing that is wrong with any trial."""

    def fault(message: str) -> UsageError:
        return UsageError(message, EXAMPLE)

    if isinstance(study, Mapping):
        source, values, folder = Source(Path("study"), ""), dict(study), Path()
    else:
        source, values = read_toml(Path(study), fault)
        folder = Path(study).absolute().parent
    top = FileTable(values, "", (source,), fault)
    shared, grid, trials = top.table("run"), top.table("grid", optional=True), top.tables("trial")
    reader = TrialReader(folder, top, shared)
    goal = read_goal(top, reader.limits)
    found = [reader.trial(grid, chosen) for chosen in _combinations(grid)]
    found += [reader.trial(one, one.values()) for one in trials]
    searching = None
    if "search" in top:
        if grid.keys():
            raise top.error("search", "and [grid] exclude each other: put the lists of [grid] into [search.ranges]")
        searching = _searching(top, reader)
    top.end()
    kept = [one for one in found if one is not None]
    for key in goal.more_memory:
        if not any(key in one.chosen for one in kept) and (searching is None or key not in searching.search.ranges):
            raise top.error("more_memory", f"no trial chooses {key}")
    if not kept and searching is None:
        raise fault(f"{source.path}: {f'`only` holds for none of {len(found)} trials' if found else NO_TRIALS}")
    return Study(list({one.key: one for one in kept}.values()), goal, searching)


def _searching(top: FileTable, reader: TrialReader) -> Searching:
    search, table = read_search(top)

    def make(chosen: Mapping[str, Any]) -> Trial | None:
        return reader.trial(table, chosen)

    corners = [one for one in map(make, search.corners()) if one is not None]
    if search.size > MOST_COUNTED:
        return Searching(search, make, corners, None)
    every = {one.key: one for one in map(make, search.all()) if one is not None}
    if not every:
        raise table.wrong(table.name, "no combination for which `only` holds")
    return Searching(search, make, corners or list(every.values())[:1], len(every))


def _combinations(grid: FileTable) -> Iterator[dict[str, Any]]:
    lists = grid.values()
    for key, choices in lists.items():
        if not isinstance(choices, list) or not choices:
            raise grid.error(key, f"expected a list of one value or more, found {shown(choices)}")
    if prod(map(len, lists.values())) > MOST_TRIALS:
        raise grid.wrong(grid.name, f"more than {MOST_TRIALS:,} combinations")
    if lists:
        for chosen in itertools.product(*lists.values()):
            yield dict(zip(lists, chosen, strict=True))


def check_options(study: Study, where: str) -> None:
    """Raises UsageError for the first trial that could not start, before any does. `where`: the study's file."""
    seen = set()
    with TemporaryDirectory(prefix="phantora-sweep-") as folder:
        possible = [*study.trials, *(study.searching.corners if study.searching is not None else ())]
        for number, trial in enumerate(possible):
            options = trial.options
            if repr(options) in seen:
                continue
            seen.add(repr(options))
            try:
                resolve(dataclasses.replace(options, run_dir=os.path.join(folder, str(number))))
            except UsageError as error:
                raise UsageError(f"{where}: trial {trial.name}: {error.message}", error.hint, error.details) from None
