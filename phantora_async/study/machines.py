"""Runs and replays trials on this machine: as many at a time as its cores and memory allow, or as the user says.

`on_ray` does this on a cluster of machines.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol, TypeVar

import psutil

from emu.contract.process_setup import prctl
from phantora_async.api import running
from phantora_async.api.replays import written
from phantora_async.api.results import Run
from phantora_async.api.run_processes import RunProcesses
from phantora_async.errors import EnvironmentUnusable, PathChanged, UsageError
from phantora_async.options import RunOptions
from phantora_async.study.trials.results import REPLAY, Result, result_of
from phantora_async.study.trials.trial import Trial

AUTO = "auto"
MOST_JOBS = 1024
INTERPRETER_NBYTES = 800 << 20
"""The memory of a run besides its ranks, in bytes: PyTorch, imported once."""
RANK_NBYTES = 128 << 20
"""The memory of one rank in bytes, until a run has reported it."""
REPLAY_NBYTES = 512 << 20
FREE_SHARE = 0.8
"""The share of the memory available now that runs may use."""
_PR_SET_PDEATHSIG = 1
Taken = TypeVar("Taken")
Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class Replay:
    trial: Trial
    recording: Path
    run_dir: Path


RoomFor = Callable[[Trial], AbstractContextManager[None]]
Replayed = tuple[Trial, "Result | str"]
"""A trial with its result, or with the reason why the recording cannot give one."""


class Machines(Protocol):
    def run(self, options: RunOptions, environment: Mapping[str, str]) -> Run:
        """Runs a script as ``api.running.run_with`` does, which raises PhantoraError. It is called by threads, as many
        as ``runs_at_a_time`` says.
        """

    def runs_at_a_time(self, trials: Sequence[Trial], known: Iterable[Result]) -> int:
        """The most trials that run at the same time."""

    def room_for(self, known: Iterable[Result]) -> RoomFor:
        """Returns what a thread enters before it runs a trial: it waits there until there is room. `known`: results
        that say what memory ranks take.
        """

    def replayed(self, replays: Sequence[Replay]) -> Iterator[Replayed]: ...

    def stop(self) -> None:
        """Stops what is still running, after an error or Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Here:
    """Runs trials on this machine. Raises UsageError for an invalid number of jobs. `processes`: those of its runs."""

    jobs: int | str = 1
    processes: RunProcesses | None = None

    def __post_init__(self) -> None:
        if self.jobs != AUTO and not (isinstance(self.jobs, int) and 1 <= self.jobs <= MOST_JOBS):
            raise UsageError(f"jobs {self.jobs}: expected 1 to {MOST_JOBS:,}, or {AUTO}")

    def run(self, options: RunOptions, environment: Mapping[str, str]) -> Run:
        return running.run_with(options, environment, self.processes)

    def stop(self) -> None:
        """Does nothing: all runs end together."""

    def runs_at_a_time(self, trials: Sequence[Trial], known: Iterable[Result]) -> int:
        """The most trials that have room together: those with the fewest processes. With `auto`, each waits for room of
        its own (`room_for`), so that one large trial does not hold up the others.
        """
        if isinstance(self.jobs, int):
            return self.jobs
        cores, nbytes = len(os.sched_getaffinity(0)), _free_nbytes()
        known, count = list(known), 0
        for ranks in sorted(trial.ranks for trial in trials):
            cores -= min(ranks, len(os.sched_getaffinity(0)))
            nbytes -= run_nbytes(ranks, known)
            if cores < 0 or nbytes < 0:
                break
            count += 1
        return max(1, count)

    def room_for(self, known: Iterable[Result]) -> RoomFor:
        if isinstance(self.jobs, int):
            return lambda trial: nullcontext()
        cores, known = len(os.sched_getaffinity(0)), list(known)
        room = Room(cores, _free_nbytes())
        return lambda trial: room.entered(min(trial.ranks, cores), run_nbytes(trial.ranks, known))

    def replayed(self, replays: Sequence[Replay]) -> Iterator[Replayed]:
        cores = len(os.sched_getaffinity(0))
        jobs = self.jobs if isinstance(self.jobs, int) else min(cores, _room(REPLAY_NBYTES))
        if jobs <= 1 or len(replays) < 2:
            yield from map(replay, replays)
            return
        with ProcessPoolExecutor(min(jobs, len(replays)), get_context("fork"), _begin) as pool:
            try:
                yield from as_they_end(pool, replay, replays, self.stop)
            except BrokenProcessPool:
                raise EnvironmentUnusable(
                    "a process that replays was ended, perhaps for lack of memory", "a smaller number of --jobs"
                ) from None


class Room:
    """The cores and the memory of this machine that runs share. A run that needs more than there is runs alone."""

    def __init__(self, cores: int, nbytes: int) -> None:
        self._cores, self._nbytes, self._inside = cores, nbytes, 0
        self._changed = threading.Condition()

    @contextmanager
    def entered(self, cores: int, nbytes: int) -> Iterator[None]:
        """A context that begins when so many cores and bytes are free, or when no other run is going on."""
        with self._changed:
            self._changed.wait_for(lambda: not self._inside or (cores <= self._cores and nbytes <= self._nbytes))
            self._take(cores, nbytes, 1)
        try:
            yield
        finally:
            with self._changed:
                self._take(-cores, -nbytes, -1)
                self._changed.notify_all()

    def _take(self, cores: int, nbytes: int, runs: int) -> None:
        self._cores, self._nbytes, self._inside = self._cores - cores, self._nbytes - nbytes, self._inside + runs


def _free_nbytes() -> int:
    return int(psutil.virtual_memory().available * FREE_SHARE)


def _room(nbytes: int) -> int:
    return _free_nbytes() // nbytes


def run_nbytes(ranks: int, known: Iterable[Result]) -> int:
    """The memory in bytes that a run with so many ranks takes of this machine, by the largest ranks of runs that have
    reported it.
    """
    each = max(filter(None, map(_rank_nbytes, known)), default=RANK_NBYTES)
    return INTERPRETER_NBYTES + ranks * each


def _rank_nbytes(result: Result) -> int | None:
    if result.how == REPLAY or not result.report:
        return None
    try:
        simulator = json.loads(Path(result.report).read_bytes())["simulator"]
        return int(
            simulator["rank_private_nbytes"]["max"]
            + simulator["coordinator_peak_rss_nbytes"] / simulator["rank_cpu"]["ranks"]
        )
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return None


def _begin() -> None:
    """Prepares a process that replays: Ctrl-C is handled by the command, with which it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def replay(task: Replay) -> Replayed:
    trial, began = task.trial, time.monotonic()
    try:
        done = written(task.recording, trial.changes(), (), str(task.run_dir))
    except (PathChanged, UsageError) as error:
        return trial, error.text
    note = "; ".join(done.remarks())
    return trial, result_of(trial, REPLAY, done.replayed.report, str(done.path), time.monotonic() - began, note)


def in_threads(
    count: int, work: Callable[[Taken], Done], tasks: Sequence[Taken], stop: Callable[[], None]
) -> Iterator[Done]:
    if count <= 1 or len(tasks) < 2:
        yield from map(work, tasks)
        return
    together = running.Together()

    def stop_all() -> None:
        together.interrupt()
        stop()

    with ThreadPoolExecutor(count, initializer=together.join) as pool:
        yield from as_they_end(pool, work, tasks, stop_all)


def as_they_end(
    pool: Executor, work: Callable[[Taken], Done], tasks: Sequence[Taken], stop: Callable[[], None]
) -> Iterator[Done]:
    """Yields results as they are ready. After an error, no further task begins, and running ones are told to stop."""
    try:
        for one in as_completed([pool.submit(work, task) for task in tasks]):
            yield one.result()
    except BaseException:
        stop()
        pool.shutdown(cancel_futures=True)
        raise
