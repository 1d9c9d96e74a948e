"""Runs trials as tasks of a Ray cluster.

Each task is one run or one replay. Its node needs phantora-async, the script and the folder of the sweep under the same
paths as here: a file system that all nodes share. A run takes as many CPUs of its node as it has ranks, at most all of
them, and the memory that runs took before.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from phantora_async.api import running
from phantora_async.api.results import Run
from phantora_async.errors import EnvironmentUnusable, PhantoraError, UsageError
from phantora_async.options import RunOptions
from phantora_async.study.machines import (
    AUTO,
    MOST_JOBS,
    REPLAY_NBYTES,
    Replay,
    Replayed,
    RoomFor,
    in_threads,
    replay,
    run_nbytes,
)
from phantora_async.study.trials.results import Result
from phantora_async.study.trials.trial import Trial

Answer = tuple["Run | None", "PhantoraError | None"]
THREADS = "OMP_NUM_THREADS"


class RayCluster:
    """The one that RAY_ADDRESS names or that runs on this machine; else one is started here and ends with this process.

    Raises EnvironmentUnusable without Ray, UsageError for a number of jobs that is none.
    """

    def __init__(self, jobs: int | str = AUTO) -> None:
        if jobs != AUTO and not (isinstance(jobs, int) and 1 <= jobs <= MOST_JOBS):
            raise UsageError(f"jobs {jobs}: expected 1 to {MOST_JOBS:,}, or {AUTO}")
        try:
            import ray
        except ImportError:
            raise EnvironmentUnusable(
                "--on ray needs Ray, which is not installed", "pip install 'phantora-async[ray]'"
            ) from None
        self._ray = ray
        if not ray.is_initialized():
            try:
                ray.init(address=os.environ.get("RAY_ADDRESS"), logging_level="error", log_to_driver=False)
            except Exception as error:  # whatever Ray raises for a cluster that does not answer
                raise EnvironmentUnusable(f"the Ray cluster cannot be used: {error}") from None
        self._jobs = jobs
        self._asked = threading.local()
        """The resources that the run of each thread asks of a node."""
        self._waited: set[Any] = set()
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self._most_cpus = max((int(node.get("CPU", 0)) for node in nodes), default=0)
        self._most_nbytes = max((int(node.get("memory", 0)) for node in nodes), default=0)
        if self._most_cpus < 1:
            raise EnvironmentUnusable("the Ray cluster has no node with CPUs")

    def run(self, options: RunOptions, environment: Mapping[str, str]) -> Run:
        """Runs the script on any node that has room."""
        task = self._ray.remote(max_retries=0, **getattr(self._asked, "needs", {}))(_run)
        folder = Path(options.run_dir or ".").parents[1]
        done: Run | None
        done, error = self._answer(task.remote(options, environment_of_trial(environment), str(folder)))
        if error is not None:
            error.run = done
            raise error
        assert done is not None, "a run without an error has a report"
        return done

    def runs_at_a_time(self, trials: Sequence[Trial], known: Iterable[Result]) -> int:
        """The number of trials at a time. Ray lets them wait until a node has room."""
        return self._jobs if isinstance(self._jobs, int) else max(1, min(len(trials), MOST_JOBS))

    def room_for(self, known: Iterable[Result]) -> RoomFor:
        """Tells what the thread's run asks of a node: the CPUs and the memory of this trial."""
        results = list(known)

        @contextmanager
        def entered(trial: Trial) -> Iterator[None]:
            nbytes = min(run_nbytes(trial.ranks, results), self._most_nbytes)
            self._asked.needs = {"num_cpus": min(trial.ranks, self._most_cpus), "memory": nbytes}
            yield

        return entered

    def replayed(self, replays: Sequence[Replay]) -> Iterator[Replayed]:
        nbytes = min(REPLAY_NBYTES, self._most_nbytes)
        task = self._ray.remote(num_cpus=1, memory=nbytes, max_retries=0)(replay)
        count = self._jobs if isinstance(self._jobs, int) else MOST_JOBS

        def one(wanted: Replay) -> Replayed:
            answer: Replayed = self._answer(task.remote(wanted))
            return answer

        yield from in_threads(min(count, len(replays)), one, replays, self.stop)

    def stop(self) -> None:
        """Interrupts what is going on: runs end with their processes."""
        for one in list(self._waited):
            self._ray.cancel(one)

    def _answer(self, waited: Any) -> Any:
        exceptions = self._ray.exceptions
        self._waited.add(waited)
        try:
            return self._ray.get(waited)
        except BaseException as error:
            self._ray.cancel(waited)
            if isinstance(error, exceptions.RayTaskError):
                cause = error.cause
                known = isinstance(cause, PhantoraError)
                raise (cause if known else EnvironmentUnusable(f"a Ray task failed: {cause}")) from None
            if isinstance(error, exceptions.RayError):
                text = next(iter(str(error).strip().splitlines()), type(error).__name__)
                raise EnvironmentUnusable(f"a Ray task was ended: {text}", "the same command goes on") from None
            raise
        finally:
            self._waited.discard(waited)


def environment_of_trial(environment: Mapping[str, str]) -> dict[str, str]:
    """The trial's variables, with the number of threads that is set here, "" for none. Ray sets it in tasks to the CPUs
    that they reserve, and it would be taken for that of the described host.
    """
    return {THREADS: os.environ.get(THREADS, ""), **environment}


def _run(options: RunOptions, environment: dict[str, str], folder: str) -> Answer:
    """Runs a trial on a node. The run that a PhantoraError has is returned beside it: exceptions lose it on their
    way.
    """
    if not Path(folder).is_dir():
        raise EnvironmentUnusable(
            f"{socket.gethostname()} does not see {folder}: all nodes need the sweep's folder under the same path",
            "--dir DIR on a file system that they share",
        )
    try:
        return running.run_with(options, environment), None
    except PhantoraError as error:
        return error.run, error
