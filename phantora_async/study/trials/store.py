"""Results of a sweep in a SQLite database: what is in it stays there, whenever the process is killed.

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
TABLE = """
CREATE TABLE trials (
    number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, name TEXT NOT NULL, how TEXT NOT NULL, state TEXT NOT NULL,
    reason TEXT NOT NULL, figures TEXT NOT NULL, job TEXT NOT NULL, report TEXT NOT NULL, wall_s REAL NOT NULL
)"""
COLUMNS = ("key", "name", "how", "state", "reason", "figures", "job", "report", "wall_s")
"""`figures` and `job` are JSON."""
ANOTHER = "name another folder: --dir DIR"


class Store:
    """The database of one sweep. `with` takes it for this process alone."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.results: dict[str, Result] = {}
        self._database: sqlite3.Connection | None = None

    def __enter__(self) -> Store:
        """Raises UsageError if the folder cannot be used, or if its file is of something else."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{short(self.path)}: {error.strerror or error}", ANOTHER) from None
        try:
            # Results come from the thread that drives the sweep; an event loop may have made another one close it.
            self._database = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
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
        ((tables,),) = database.execute("SELECT count(*) FROM sqlite_master")
        if not found and not tables:
            database.execute(TABLE)
            database.execute(f"PRAGMA user_version = {FORMAT}")
        elif found != FORMAT:
            raise UsageError(f"{short(self.path)} is of another version, or of another program", ANOTHER)
        database.execute("COMMIT")
        self.results = {one.key: one for one in self._read(database)}

    def _read(self, database: sqlite3.Connection) -> Iterator[Result]:
        with closing(database.execute(f"SELECT {', '.join(COLUMNS)} FROM trials ORDER BY number")) as rows:
            for number, row in enumerate(rows, 1):
                try:
                    yield _result(dict(zip(COLUMNS, row, strict=True)))
                except (ValueError, TypeError, KeyError, RecursionError):
                    raise UsageError(f"{short(self.path)}: row {number} is no result of a sweep", ANOTHER) from None

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
        """In place of one that the trial has already. Raises NotWritten."""
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


def _text(text: str) -> str:
    """Without what UTF-8 cannot say: bytes of names of files."""
    return text.encode(errors="backslashreplace").decode()


def _result(row: dict[str, Any]) -> Result:
    """Raises ValueError, TypeError or KeyError for what is none."""
    figures, job = json.loads(row.pop("figures")), json.loads(row.pop("job"))
    found = Result(job=None if job is None else Job(**job), figures=figures, **row)
    numbers = (found.wall_s, *found.figures.values())
    if found.state not in STATES or not all(isinstance(one, int | float) for one in numbers):
        raise ValueError("no result")
    if found.good and job is None:
        raise ValueError("no result")
    return found
