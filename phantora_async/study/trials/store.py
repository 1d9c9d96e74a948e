"""Keeps the results of a sweep in a SQLite database, where they survive if the process is killed.

Each result is a transaction of its own, on the disk before the next trial begins. SQLite takes back what a killed
process has left half written.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from phantora_async.errors import NotWritten, UsageError
from phantora_async.spending.job import Job
from phantora_async.study.trials.results import STATES, Result
from phantora_async.wording import short

FILE = "trials.sqlite"
FORMAT = 1
MOST_NBYTES = 64 << 20
"""The most bytes of one value in the database."""
MOST_ALL_NBYTES = 1 << 30
"""The most bytes of all texts. A result has some thousand bytes."""
MOST_STEPS = 1000
"""The thousands of instructions that SQLite's machine may execute until it has the next row: no query here needs a
search.
"""
TABLE = """
CREATE TABLE trials (
    number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, name TEXT NOT NULL, how TEXT NOT NULL, state TEXT NOT NULL,
    reason TEXT NOT NULL, figures TEXT NOT NULL, job TEXT NOT NULL, report TEXT NOT NULL, wall_s REAL NOT NULL
)"""
COLUMNS = ("key", "name", "how", "state", "reason", "figures", "job", "report", "wall_s")
"""The columns of the table; `figures` and `job` are JSON."""
ANOTHER = "name another folder: --dir DIR"


class Store:
    """The database of one sweep. `with` locks it for this process alone."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.results: dict[str, Result] = {}
        self._database: sqlite3.Connection | None = None

    def __enter__(self) -> Store:
        """Opens the database. Raises UsageError if the folder cannot be used, or if its file is something else."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{short(self.path)}: {error.strerror or error}", ANOTHER) from None
        if self.path.exists() and not self.path.is_file():
            raise UsageError(f"{short(self.path)} is no file", ANOTHER)
        try:
            # Results come from the thread that drives the sweep; an event loop may have made another one close it.
            self._database = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
            self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_NBYTES)
            self._begin(self._database)
        except sqlite3.Error as error:
            self.__exit__()
            raise self._unusable(error) from None
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self, database: sqlite3.Connection) -> None:
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("BEGIN EXCLUSIVE")
        ((found,),) = database.execute("PRAGMA user_version")
        made = list(database.execute("SELECT type, sql FROM sqlite_master WHERE sql IS NOT NULL LIMIT 2"))
        if not found and not made:
            database.execute(TABLE)
            database.execute(f"PRAGMA user_version = {FORMAT}")
        elif found != FORMAT or [(kind, _words(sql)) for kind, sql in made] != [("table", _words(TABLE))]:
            raise UsageError(f"{short(self.path)} is of another version, or of another program", ANOTHER)
        database.execute("COMMIT")
        self.results = {one.key: one for one in self._read(database)}

    def _read(self, database: sqlite3.Connection) -> Iterator[Result]:
        steps = nbytes = 0

        def too_long() -> bool:
            nonlocal steps
            steps += 1
            return steps > MOST_STEPS

        database.set_progress_handler(too_long, 1000)
        with closing(database.execute(f"SELECT {', '.join(COLUMNS)} FROM trials ORDER BY number")) as rows:
            for number, row in enumerate(rows, 1):
                steps = 0
                nbytes += sum(len(one) for one in row if isinstance(one, str | bytes))
                if nbytes > MOST_ALL_NBYTES:
                    raise UsageError(f"{short(self.path)} is larger than what a sweep writes", ANOTHER)
                try:
                    yield _result(dict(zip(COLUMNS, row, strict=True)))
                except (ValueError, TypeError, KeyError, RecursionError):
                    raise UsageError(f"{short(self.path)}: row {number} is no result of a sweep", ANOTHER) from None
        database.set_progress_handler(None, 0)

    def _unusable(self, error: sqlite3.Error) -> UsageError:
        if "locked" in str(error):
            return UsageError(f"{short(self.path)}: another sweep is using it", ANOTHER)
        return UsageError(f"{short(self.path)}: {error}", ANOTHER)

    def __exit__(self, *_: object) -> None:
        if self._database is not None:
            with suppress(sqlite3.Error):
                self._database.close()
            self._database = None

    def add(self, result: Result) -> None:
        """Stores the result, in place of one that the trial has already. Raises NotWritten."""
        assert self._database is not None, "results are added within `with`"
        job = None if result.job is None else {name: getattr(result.job, name) for name in Job.__slots__}
        values = (
            result.key,
            result.name,
            result.how,
            result.state,
            _text(result.reason),
            json.dumps(dict(result.figures)),
            json.dumps(job),
            result.report,
            result.wall_s,
        )
        try:
            marks = ", ".join("?" * len(COLUMNS))
            self._database.execute(f"INSERT OR REPLACE INTO trials ({', '.join(COLUMNS)}) VALUES ({marks})", values)
        except sqlite3.Error as error:
            raise NotWritten(f"cannot write {short(self.path)}: {error}") from None
        self.results[result.key] = result


def _words(sql: object) -> str:
    """The statement on one line, to be compared. Other content of the database, such as a view of that name, may never
    end.
    """
    return " ".join(str(sql).split())


def _text(text: str) -> str:
    """The text without what UTF-8 cannot express: bytes of file names."""
    return text.encode(errors="backslashreplace").decode()


def _job(fields: dict[str, Any]) -> Job:
    """The job with these fields. Raises TypeError for invalid ones."""
    job = Job(**fields)
    texts, numbers = (job.gpu, job.tokens_from), (job.gpus, job.step_s)
    perhaps = [one for one in (job.step_j, job.tokens_per_step) if one is not None]
    if not all(isinstance(one, str) for one in texts) or not all(map(_is_number, (*numbers, *perhaps))):
        raise TypeError("no job")
    return job


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _result(row: dict[str, Any]) -> Result:
    """The result of this row. Raises ValueError, TypeError or KeyError for an invalid one."""
    wall_s = row["wall_s"]
    if not all(isinstance(one, str) for name, one in row.items() if name != "wall_s") or not _is_number(wall_s):
        raise TypeError("no result")
    figures, job = json.loads(row.pop("figures")), json.loads(row.pop("job"))
    if not isinstance(figures, dict) or not isinstance(job, dict | None):
        raise TypeError("no result")
    found = Result(job=None if job is None else _job(job), figures=figures, **row)
    if found.state not in STATES or not all(map(_is_number, figures.values())):
        raise ValueError("no result")
    if found.good and job is None:
        raise ValueError("no result")
    return found
