"""Runs and replays the trials of a study.

Of all trials with one program, one is run and recorded, on the GPU with the most memory; the others are replays. A
replay that leaves the recorded path (docs/replay.md) is run after all. So there are rounds: runs, then replays, until
no trial is left. `pruning` decides which need not be run.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from phantora_async.budget import Limits
from phantora_async.errors import (
    EnvironmentUnusable,
    Interrupted,
    JobsFailed,
    NotFoldable,
    NotWritten,
    OverBudget,
    PhantoraError,
)
from phantora_async.study.machines import Machines, Replay, in_threads
from phantora_async.study.pruning import Pruning, limited
from phantora_async.study.trials.results import FAILED, REPLAY, RUN, Result, failure_of, pruned_of, result_of
from phantora_async.study.trials.store import Store
from phantora_async.study.trials.trial import Trial

RECORDED = ("recording", "run.json")
"""The files of a complete recording."""
NOT_RECORDED = "such a run cannot be recorded, so that nothing can be replayed"


@dataclass
class Sweep:
    folder: Path
    store: Store
    machines: Machines
    keep_going: bool = False
    """True: go on even if the first trial fails."""
    again: bool = False
    """True: run also trials of which nothing changed since they were run in another sweep."""
    pruning: Pruning = field(default_factory=Pruning)
    _unplayable: dict[str, str] = field(default_factory=dict)
    """The reasons why trials cannot be replayed, by their keys."""
    _unrecorded: set[str] = field(default_factory=set)
    """The programs whose run left no recording."""
    _works: bool = False
    """True once a trial of this sweep has figures."""

    def results(self, trials: Sequence[Trial]) -> Iterator[Result]:
        """Yields the results of the trials that the store does not have, or that were pruned for a reason that no
        longer holds, each when it is known and stored. Raises JobsFailed if the first trial fails, and every error that
        is not the fault of one trial.
        """
        self.pruning.trials.update((trial.key, trial) for trial in trials)
        known = self.store.results
        for trial in trials:
            if trial.key in known and not self.pruning.holds(trial, known[trial.key], known):
                del known[trial.key]
        left = self._without_known(trials)
        first = not any(trial.key in known and known[trial.key].good for trial in trials) and not self._works
        while left:
            runs = self._runs(left)
            if first and not self.keep_going:
                runs = runs[:1]
            for result in self._all_run(runs, left):
                yield self._stored(result)
                if first and result.state == FAILED and not self.keep_going:
                    raise JobsFailed(f"the first trial failed: {result.name}: {result.reason}")
            first = False
            left = self._without_known(left)
            for result in self._all_replayed(left):
                yield self._stored(result)
            left = self._without_known(left)

    def _stored(self, result: Result) -> Result:
        self.store.add(result)
        self._works |= result.good
        return result

    def _without_known(self, trials: Sequence[Trial]) -> list[Trial]:
        return [trial for trial in trials if trial.key not in self.store.results]

    # ---- runs ------------------------------------------------------------------------------------------------------

    def _runs(self, left: Sequence[Trial]) -> list[Trial]:
        """The trials to run: those that no replay can give, and one of each program that has no recording."""
        chosen = [trial for trial in left if trial.key in self._unplayable]
        by_program: dict[str, list[Trial]] = {}
        for trial in left:
            if trial.key not in self._unplayable:
                by_program.setdefault(trial.program, []).append(trial)
        for program, trials in by_program.items():
            if not trials[0].recordable or program in self._unrecorded:
                self._unplayable |= {trial.key: NOT_RECORDED for trial in trials}
                chosen += trials
            elif not self._is_recorded(program):
                # A trial that a run gives as it is comes before one that needs a replay of it besides.
                chosen.append(max(trials, key=lambda one: (one.gpu.memory.total_nbytes, one.runs_as_it_is)))
        return self.pruning.in_order(chosen)

    def _all_run(self, trials: Sequence[Trial], left: Sequence[Trial]) -> Iterator[Result]:
        of_program = Counter(trial.program for trial in left)

        known = list(self.store.results.values())
        count, room = self.machines.runs_at_a_time(trials, known), self.machines.room_for(known)

        def one(trial: Trial) -> Result | None:
            shared = of_program[trial.program] > 1
            try:
                with room(trial):
                    pruned = self.pruning.not_begun(trial, dict(self.store.results))
                    return pruned or self._one_run(trial, shared, folded=trial.folded)
            except NotFoldable:
                print(f"phantora-async: {trial.name}: again with a process for each rank", file=sys.stderr)
                self._unfolded_mark(trial).parent.mkdir(parents=True, exist_ok=True)
                self._unfolded_mark(trial).touch()
            # These processes are more than what the trial had room for.
            with room(replace(trial, may_fold=False)):
                return self._one_run(trial, shared, folded=False)

        yield from filter(None, in_threads(count, one, trials, self.machines.stop))

    def _one_run(self, trial: Trial, shared: bool, *, folded: bool) -> Result | None:
        """Runs the trial. `shared`: other trials have its program. `folded`: it is folded by itself; raises NotFoldable
        if its ranks turn out to differ. Returns None if the trial needs a replay of what was recorded now.
        """
        began = time.monotonic()
        why = self._unplayable.get(trial.key)
        if why is not None and not trial.can_run:
            return Result(trial.key, trial.name, REPLAY, FAILED, why)
        as_recorded = why is None and not trial.runs_as_it_is
        options = trial.recorded_options() if as_recorded else trial.options
        options = replace(options, run_dir=str(self.folder / "runs" / f"{trial.key}{'-recorded' * as_recorded}"))
        record = why is None and (as_recorded or shared)
        if record:
            shutil.rmtree(self._recording(trial.program), ignore_errors=True)  # an ended run may have left one
            options = replace(options, record=str(self._recording(trial.program)))
        # A recording is more than a result.
        known = options.known and not record and not as_recorded
        options = replace(options, known=known, again=self.again)
        limits = Limits({}) if record or as_recorded else self.pruning.limits(trial, dict(self.store.results))
        options = limited(trial.started(options) if folded else options, limits)
        try:
            done = self.machines.run(options.checked(), trial.environment if as_recorded else trial.run_environment())
        except (EnvironmentUnusable, Interrupted):
            raise
        except OverBudget as error:
            done = error.run
        except NotWritten as error:
            if not record or error.run is None:
                raise  # a full disk is no fault of the trial's
            done = error.run  # without a recording
        except PhantoraError as error:
            if folded and isinstance(error, NotFoldable):
                raise
            report, path = (None, "") if error.run is None else (error.run.report, str(error.run.path))
            return failure_of(trial, RUN, error.text, report, path, time.monotonic() - began)
        assert done is not None, "a run that has ended well has a report"
        if record and not self._is_recorded(trial.program):
            self._unrecorded.add(trial.program)
        if as_recorded:
            return None
        executed = done.report, str(done.path), time.monotonic() - began
        return pruned_of(trial, limits, *executed) or result_of(trial, RUN, *executed)

    def _recording(self, program: str) -> Path:
        return self.folder / "recordings" / program

    def _is_recorded(self, program: str) -> bool:
        return all((self._recording(program) / name).is_file() for name in RECORDED)

    def _unfolded_mark(self, trial: Trial) -> Path:
        """The file that says that the trial could not be folded by itself."""
        return self.folder / "runs" / f"{trial.key}.unfolded"

    def as_executed(self, trial: Trial) -> Trial:
        """The trial as it was run: without folding, if that turned out to be impossible."""
        return replace(trial, may_fold=False) if self._unfolded_mark(trial).is_file() else trial

    def recording_of(self, trial: Trial) -> Path | None:
        return self._recording(trial.program) if self._is_recorded(trial.program) else None

    # ---- replays ---------------------------------------------------------------------------------------------------

    def _all_replayed(self, left: Sequence[Trial]) -> Iterator[Result]:
        recorded = {program for program in {trial.program for trial in left} if self._is_recorded(program)}
        replays = [
            Replay(trial, self._recording(trial.program), self.folder / "runs" / f"{trial.key}-replay")
            for trial in left
            if trial.program in recorded and trial.key not in self._unplayable
        ]
        for trial, found in self.machines.replayed(replays):
            if isinstance(found, Result):
                yield found
            else:
                self._unplayable[trial.key] = found.splitlines()[0]
