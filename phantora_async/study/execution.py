"""Runs and replays the trials of a study.

Of the trials with one program one is run and recorded, on the GPU with the most memory; the others are replays. A
replay that leaves the recorded path (docs/replay.md) is run after all. So there are rounds: runs, then replays, until
no trial is left.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from emu.contract.process_setup import prctl
from phantora_async.api.replays import written
from phantora_async.api.results import Run
from phantora_async.errors import (
    EnvironmentUnusable,
    Interrupted,
    JobsFailed,
    NotWritten,
    PathChanged,
    PhantoraError,
    UsageError,
)
from phantora_async.options import RunOptions
from phantora_async.study.results import FAILED, REPLAY, RUN, Result, Store, failure_of, result_of
from phantora_async.study.trial import Trial

Runner = Callable[[RunOptions, Mapping[str, str]], Run]
"""``api.running.run_with``, which raises PhantoraError."""
RECORDED = ("recording", "run.json")
"""Files of a recording that is complete."""
_PR_SET_PDEATHSIG = 1
NOT_RECORDED = "such a run cannot be recorded, so that nothing can be replayed"
Taken = TypeVar("Taken")
Done = TypeVar("Done")


@dataclass
class Sweep:
    folder: Path
    store: Store
    run: Runner
    jobs: int = 1
    """Trials at a time."""
    keep_going: bool = False
    """Also if the first trial fails."""
    _unplayable: dict[str, str] = field(default_factory=dict)
    """Why trials, by their keys, are no replays."""
    _unrecorded: set[str] = field(default_factory=set)
    """Programs whose run left no recording."""

    def results(self, trials: Sequence[Trial]) -> Iterator[Result]:
        """Those that the store does not have, each when it is known and stored. Raises JobsFailed if the first trial
        fails, and whatever is not the fault of one trial.
        """
        left = [trial for trial in trials if trial.key not in self.store.results]
        first = not any(result.good for result in self.store.results.values())  # nothing is known to work
        while left:
            runs = self._runs(left)
            if first:
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
        return result

    def _without_known(self, trials: Sequence[Trial]) -> list[Trial]:
        return [trial for trial in trials if trial.key not in self.store.results]

    # ---- runs ------------------------------------------------------------------------------------------------------

    def _runs(self, left: Sequence[Trial]) -> list[Trial]:
        """Those that no replay can give, and one of each program that has no recording."""
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
        return chosen

    def _all_run(self, trials: Sequence[Trial], left: Sequence[Trial]) -> Iterator[Result]:
        of_program = Counter(trial.program for trial in left)

        def one(trial: Trial) -> Result | None:
            return self._one_run(trial, of_program[trial.program] > 1)

        if self.jobs == 1 or len(trials) < 2:
            yield from filter(None, map(one, trials))
            return
        with ThreadPoolExecutor(self.jobs) as pool:
            yield from filter(None, _as_they_end(pool, one, trials))

    def _one_run(self, trial: Trial, shared: bool) -> Result | None:
        """`shared`: other trials have its program. None if the trial needs a replay of what was recorded now."""
        began = time.monotonic()
        why = self._unplayable.get(trial.key)
        if why is not None and not trial.can_run:
            return Result(trial.key, trial.name, REPLAY, FAILED, why)
        as_recorded = why is None and not trial.runs_as_it_is
        options = trial.recorded_options() if as_recorded else trial.options
        options = replace(options, run_dir=str(self.folder / "runs" / f"{trial.key}{'-recorded' * as_recorded}"))
        record = why is None and (as_recorded or shared)
        if record:
            shutil.rmtree(self._recording(trial.program), ignore_errors=True)  # what an ended run has left
            options = replace(options, record=str(self._recording(trial.program)))
        try:
            done = self.run(options.checked(), trial.environment if as_recorded else trial.run_environment())
        except (EnvironmentUnusable, Interrupted):
            raise
        except PhantoraError as error:
            if not (isinstance(error, NotWritten) and record and error.run is not None):
                report, path = (None, "") if error.run is None else (error.run.report, str(error.run.path))
                return failure_of(trial, RUN, error.text, report, path, time.monotonic() - began)
            done = error.run
        if record and not self._is_recorded(trial.program):
            self._unrecorded.add(trial.program)
        if as_recorded:
            return None
        return result_of(trial, RUN, done.report, str(done.path), time.monotonic() - began)

    def _recording(self, program: str) -> Path:
        return self.folder / "recordings" / program

    def _is_recorded(self, program: str) -> bool:
        return all((self._recording(program) / name).is_file() for name in RECORDED)

    def recording_of(self, trial: Trial) -> Path | None:
        return self._recording(trial.program) if self._is_recorded(trial.program) else None

    # ---- replays ---------------------------------------------------------------------------------------------------

    def _all_replayed(self, left: Sequence[Trial]) -> Iterator[Result]:
        recorded = {program for program in {trial.program for trial in left} if self._is_recorded(program)}
        tasks = [
            _Task(trial, self._recording(trial.program), self.folder / "runs" / f"{trial.key}-replay")
            for trial in left
            if trial.program in recorded and trial.key not in self._unplayable
        ]
        if self.jobs == 1 or len(tasks) < 2:
            yield from self._taken(map(_replayed, tasks))
            return
        with ProcessPoolExecutor(min(self.jobs, len(tasks)), get_context("fork"), _begin) as pool:
            try:
                yield from self._taken(_as_they_end(pool, _replayed, tasks))
            except BrokenProcessPool:
                raise EnvironmentUnusable(
                    "a process that replays was ended, perhaps for lack of memory", "a smaller number of --jobs"
                ) from None

    def _taken(self, replayed: Iterable[tuple[Trial, Result | str]]) -> Iterator[Result]:
        for trial, found in replayed:
            if isinstance(found, Result):
                yield found
            else:
                self._unplayable[trial.key] = found.splitlines()[0]


@dataclass(frozen=True, slots=True)
class _Task:
    trial: Trial
    recording: Path
    run_dir: Path


def _begin() -> None:
    """Of a process that replays: Ctrl-C is the command's, with which it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _replayed(task: _Task) -> tuple[Trial, Result | str]:
    """With the reason if the recording cannot say."""
    trial, began = task.trial, time.monotonic()
    try:
        done = written(task.recording, trial.changes(), (), str(task.run_dir))
    except (PathChanged, UsageError) as error:
        return trial, error.text
    note = "; ".join(done.remarks())
    return trial, result_of(trial, REPLAY, done.replayed.report, str(done.path), time.monotonic() - began, note)


def _as_they_end(pool: Executor, work: Callable[[Taken], Done], tasks: Sequence[Taken]) -> Iterator[Done]:
    """After an error, what has not begun does not begin any more."""
    try:
        for one in as_completed([pool.submit(work, task) for task in tasks]):
            yield one.result()
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
