"""Runs a whole sweep in one call, for the command and for `phantora_async.sweep`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phantora_async.api.run_processes import RunProcesses
from phantora_async.errors import UsageError
from phantora_async.spending.asked import prices_of
from phantora_async.study.execution import Sweep
from phantora_async.study.machines import Here, Machines
from phantora_async.study.outcome import files
from phantora_async.study.outcome.front import Entry, Outcome, outcome
from phantora_async.study.outcome.page import sweep_page
from phantora_async.study.outcome.text import as_document, as_text, rows
from phantora_async.study.pruning import Pruning
from phantora_async.study.search import Found, check_known, searched
from phantora_async.study.trials.results import Result
from phantora_async.study.trials.store import Store
from phantora_async.study.trials.study_file import Study, check_options, read

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

ON = ("here", "ray")
Told = Callable[[Result, int, int], None]
"""Called with a trial's result, the number of trials that are known now, and the number of all."""


class Swept:
    """The result of a sweep. ``print(swept)`` shows it as the command line does."""

    def __init__(self, name: str, study: Study, found: Outcome, sweep: Sweep) -> None:
        self.name = name
        self.study = study
        self.outcome = found
        self._sweep = sweep

    @property
    def trials(self) -> Sequence[Entry]:
        return self.outcome.entries

    @property
    def front(self) -> Sequence[Entry]:
        """The trials for which no other one is better in all objectives."""
        return self.outcome.front

    def best(self, objective: str) -> Entry:
        """The best trial in one of ``study.goal.OBJECTIVES``. Raises UsageError for one that is not compared."""
        if objective not in self.outcome.objectives:
            known = ", ".join(self.outcome.objectives) or "none"
            raise UsageError(f"objective {objective!r} is not compared; those that are: {known}")
        return self.outcome.best(objective)

    def command(self, entry: Entry) -> str:
        """The command for a shell that runs or replays the trial."""
        executed = self._sweep.as_executed(entry.trial)
        return executed.command(self._sweep.recording_of(entry.trial))

    def document(self) -> dict[str, Any]:
        return as_document(self.outcome, self.command)

    def to_pandas(self) -> pandas.DataFrame:
        """A DataFrame with a row for each trial. Raises EnvironmentUnusable without pandas."""
        from phantora_async.errors import EnvironmentUnusable

        try:
            import pandas
        except ImportError:
            raise EnvironmentUnusable("tables need pandas, which is not installed", "pip install pandas") from None
        return pandas.DataFrame(rows(self.outcome))

    def write_table(self, path: str | os.PathLike[str]) -> None:
        """Writes the trials as CSV, JSON or Parquet, depending on the name's suffix. Raises UsageError, NotWritten,
        EnvironmentUnusable.
        """
        files.check_files(Path(path), None)
        files.write(Path(path), files.table(self.outcome, Path(path).suffix))

    def write_page(self, path: str | os.PathLike[str]) -> None:
        """Writes one HTML file with filters. Raises NotWritten."""
        files.write(Path(path), sweep_page(self.document(), self.name).encode())

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draws the Pareto front, and writes it to `path` (PNG, SVG, PDF) if given. Raises as ``write_table``."""
        if path is not None:
            files.check_files(None, Path(path))
            files.write(Path(path), files.picture_bytes(self.outcome, Path(path).suffix))
        return files.picture(self.outcome)

    def __str__(self) -> str:
        return as_text(self.outcome, self.command)


def sweep(
    study: str | os.PathLike[str] | Mapping[str, Any],
    *,
    folder: str | os.PathLike[str] | None = None,
    jobs: int | str = 1,
    on: str = "here",
    prices: str | None = None,
    keep_going: bool = False,
    again: bool = False,
    told: Told | None = None,
) -> Swept:
    """Tries configurations of a study, as `phantora-async sweep` does: a TOML file, or a mapping of the same form.

    Results are kept in `folder` (default: STUDY.sweep beside the file, phantora-sweep for a mapping): what is there
    already is not tried again. `again`: a trial that is not there is run also if nothing changed since it was run for
    another folder. `jobs`: trials at a time, "auto": as many as cores and memory allow. `on`: "here", or
    "ray" for tasks of a Ray cluster. `told` is called with each result. Raises the errors of ``phantora_async.errors``.
    """
    shared = RunProcesses()
    machines = _machines(on, jobs, shared)
    wanted = read(study)
    listed = prices_of(prices)
    check_options(wanted, "study" if isinstance(study, Mapping) else str(study))
    name = "study" if isinstance(study, Mapping) else Path(study).stem
    if folder is None:
        folder = "phantora-sweep" if isinstance(study, Mapping) else Path(study).with_suffix(".sweep")
    place = Path(folder).absolute()
    found = Found({trial.key: trial for trial in wanted.trials})
    total = len(wanted.trials)
    if wanted.searching is not None:
        check_known(wanted.searching, wanted.goal, listed)
        total += wanted.searching.wanted
    with Store(place) as store, shared:
        running_sweep = Sweep(place, store, machines, keep_going, again, Pruning(wanted.goal, listed))
        # Results come as they are made: `told` must not wait for the last trial, and a search chooses by those before.
        chosen: Iterable[Result] = ()
        if wanted.searching is not None:
            chosen = searched(wanted.searching, wanted.goal, listed, running_sweep, found)
        for result in itertools.chain(running_sweep.results(wanted.trials), chosen):
            if told is not None:
                told(result, sum(key in store.results for key in found.trials), total)
    return Swept(name, wanted, outcome(wanted.goal, found.trials.values(), store.results, listed), running_sweep)


def _machines(on: str, jobs: int | str, shared: RunProcesses) -> Machines:
    if on not in ON:
        raise UsageError(f"on {on!r}: expected one of {', '.join(ON)}")
    here = Here(jobs, shared)
    if on == "here":
        return here
    from phantora_async.study.on_ray import RayCluster

    return RayCluster(jobs)
