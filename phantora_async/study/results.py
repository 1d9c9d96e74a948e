"""What came of trials: a file with a line of JSON for each, so that a sweep that was ended goes on where it was."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from formats.files import read_bytes
from phantora_async.budget import figures_of
from phantora_async.errors import NotWritten, UsageError
from phantora_async.spending.job import Job, job_of
from phantora_async.study.trial import Trial
from phantora_async.wording import gib, short

FILE = "trials.jsonl"
DONE, NO_MEMORY, FAILED = "done", "out of memory", "failed"
STATES = (DONE, NO_MEMORY, FAILED)
RUN, REPLAY = "run", "replay"
MOST_NBYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Result:
    key: str
    """The trial's."""
    name: str
    how: str
    """Run or replayed."""
    state: str
    reason: str
    """Why there are no figures; empty if there are. What should be known of them otherwise."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """As ``budget`` names them: bytes, seconds, shares."""
    job: Job | None = None
    """Tokens as the script has logged them."""
    report: str = ""
    wall_s: float = 0.0

    @property
    def good(self) -> bool:
        return self.state == DONE


def result_of(trial: Trial, how: str, report: Mapping[str, Any], path: str, wall_s: float, note: str = "") -> Result:
    """Of a run that ended well."""
    job = job_of(report)
    if job is None:
        return Result(
            trial.key, trial.name, how, FAILED, "no steps were found, or no GPU was used", {}, None, path, wall_s
        )
    return Result(trial.key, trial.name, how, DONE, note, figures_of(report), job, path, wall_s)


def failure_of(
    trial: Trial, how: str, failure: str, report: Mapping[str, Any] | None, path: str, wall_s: float
) -> Result:
    """`report`: None if there is none."""
    verdict = None if report is None else report["simulated"].get("memory", {}).get("verdict")
    if verdict is not None and not verdict["fits"]:
        missing = verdict["missing_nbytes"]
        reason = f"{gib(missing)} missing at least" if missing else "it does not fit"
        return Result(trial.key, trial.name, how, NO_MEMORY, reason, {}, None, path, wall_s)
    return Result(trial.key, trial.name, how, FAILED, failure.splitlines()[0], {}, None, path, wall_s)


class Store:
    """The file of one sweep. `with` takes it for this process alone."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.results: dict[str, Result] = {}
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Store:
        """Raises UsageError if the folder cannot be used, or if its file is of something else."""
        hint = "name another folder: --dir DIR"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = read_bytes(self.path, MOST_NBYTES)
        except BlockingIOError:
            raise UsageError(f"{short(self.path)}: another sweep is using it", hint) from None
        except OSError as error:
            raise UsageError(f"{short(self.path)}: {error.strerror or error}", hint) from None
        whole = content.rfind(b"\n") + 1  # the last line of a sweep that was killed may be a part of one
        self.results = {one.key: one for one in self._parsed(content[:whole])}
        self._file.truncate(whole)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def _parsed(self, content: bytes) -> Iterable[Result]:
        for number, line in enumerate(content.splitlines(), 1):
            try:
                yield _result(json.loads(line))
            except (ValueError, TypeError, KeyError, RecursionError):
                raise UsageError(
                    f"{short(self.path)}:{number} is no result of a sweep", "remove the file, or name another folder"
                ) from None

    def add(self, result: Result) -> None:
        """Raises NotWritten."""
        assert self._file is not None, "results are added within `with`"
        try:
            self._file.write(json.dumps(asdict(result)).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise NotWritten(f"cannot write {short(self.path)}: {error.strerror}") from None
        self.results[result.key] = result


def _result(told: Any) -> Result:
    """Raises ValueError, TypeError or KeyError for what is none."""
    job = told.pop("job")
    found = Result(job=None if job is None else Job(**job), **told)
    texts = (found.key, found.name, found.how, found.reason, found.report)
    numbers = (found.wall_s, *found.figures.values())
    if found.state not in STATES or not all(isinstance(one, str) for one in texts):
        raise ValueError("no result")
    if not all(isinstance(one, int | float) for one in numbers) or (found.good and job is None):
        raise ValueError("no result")
    return found
