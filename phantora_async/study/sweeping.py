"""A sweep in one call, for the command and for `phantora_async.sweep`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phantora_async.api import running
from phantora_async.errors import UsageError
from phantora_async.spending.asked import prices_of
from phantora_async.study.execution import Sweep
from phantora_async.study.front import Entry, Outcome, outcome
from phantora_async.study.results import Result, Store
from phantora_async.study.study_file import Study, check_options, read
from phantora_async.study.text import as_document, as_text, rows

if TYPE_CHECKING:
    import pandas

MOST_JOBS = 1024
Told = Callable[[Result, int, int], None]
"""Of a trial: what came of it, how many are known now, and of how many."""


class Swept:
    """What a sweep has found. ``print(swept)`` shows it as the command line does."""

    def __init__(self, study: Study, found: Outcome, sweep: Sweep) -> None:
        self.study = study
        self.outcome = found
        self._sweep = sweep

    @property
    def trials(self) -> Sequence[Entry]:
        return self.outcome.entries

    @property
    def front(self) -> Sequence[Entry]:
        """Trials of which no other one is better in all objectives."""
        return self.outcome.front

    def best(self, objective: str) -> Entry:
        """``time``, ``memory``, ``money`` or ``energy``. Raises UsageError for one that is not compared."""
        if objective not in self.outcome.objectives:
            known = ", ".join(self.outcome.objectives) or "none"
            raise UsageError(f"objective {objective!r} is not compared; those that are: {known}")
        return self.outcome.best(objective)

    def command(self, entry: Entry) -> str:
        """To type in a shell."""
        return entry.trial.command(self._sweep.recording_of(entry.trial))

    def document(self) -> dict[str, Any]:
        return as_document(self.outcome, self.command)

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each trial. Raises EnvironmentUnusable without pandas."""
        from phantora_async.errors import EnvironmentUnusable

        try:
            import pandas
        except ImportError:
            raise EnvironmentUnusable("tables need pandas, which is not installed", "pip install pandas") from None
        return pandas.DataFrame(rows(self.outcome))

    def __str__(self) -> str:
        return as_text(self.outcome, self.command)


def sweep(
    study: str | os.PathLike[str] | Mapping[str, Any],
    *,
    folder: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    prices: str | None = None,
    keep_going: bool = False,
    told: Told | None = None,
) -> Swept:
    """Tries all configurations of a study, as `phantora-async sweep` does: a TOML file, or a mapping of the same form.

    Results are kept in `folder` (default: STUDY.sweep beside the file, phantora-sweep for a mapping): what is there
    already is not tried again. `jobs`: trials at a time. `told` is called with each result. Raises the errors of
    ``phantora_async.errors``.
    """
    if not 1 <= jobs <= MOST_JOBS:
        raise UsageError(f"jobs {jobs}: expected 1 to {MOST_JOBS:,}")
    wanted = read(study)
    listed = prices_of(prices)
    check_options(wanted)
    if folder is None:
        folder = "phantora-sweep" if isinstance(study, Mapping) else Path(study).with_suffix(".sweep")
    place = Path(folder).absolute()
    with Store(place) as store:
        running_sweep = Sweep(place, store, running.run_with, jobs, keep_going)
        for result in running_sweep.results(wanted.trials):
            if told is not None:
                told(result, sum(trial.key in store.results for trial in wanted.trials), len(wanted.trials))
    return Swept(wanted, outcome(wanted, store.results, listed), running_sweep)
