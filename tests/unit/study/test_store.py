"""The database of a sweep: what may come from somebody else is read as data, in bounded time, or refused."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from phantora_async.errors import UsageError
from phantora_async.study.trials import store
from phantora_async.study.trials.results import Result
from phantora_async.study.trials.store import FILE, FORMAT, TABLE, Store

GOOD: dict[str, Any] = {
    "key": "k",
    "name": "n",
    "how": "run",
    "state": "failed",
    "reason": "",
    "figures": '{"step_time": 1.5}',
    "job": "null",
    "report": "",
    "wall_s": 2.0,
}
JOB = {"gpu": "h200", "gpus": 8, "step_s": 0.5, "step_j": None, "tokens_per_step": 4.0, "tokens_from": "script"}


def made(folder: Path, *statements: str, table: str = TABLE, rows: int = 1, **other: Any) -> Store:
    """A database with these rows, after the statements."""
    row = GOOD | other
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        database.execute(table)
        marks = ", ".join(f":{name}" for name in row)
        for number in range(rows):
            key = {"key": row["key"] if rows == 1 else str(number)}
            if not table.startswith("CREATE VIEW"):
                database.execute(f"INSERT INTO trials ({', '.join(row)}) VALUES ({marks})", row | key)
        for statement in statements:
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {FORMAT}")
    return Store(folder)


def test_what_was_stored_is_read(tmp_path: Path) -> None:
    with made(tmp_path, state="done", job=json.dumps(JOB)) as found:
        (result,) = found.results.values()
        assert (result.figures, result.wall_s, result.job and result.job.gpus) == ({"step_time": 1.5}, 2.0, 8)
        found.add(Result("other", "n", "run", "failed", "why"))
    with Store(tmp_path) as again:
        assert list(again.results) == ["k", "other"]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("figures", text) for text in ("null", "[]", "NaN", "7", '"x"', "[[1]]", "{", '{"a": null}', '{"a": true}')),
        ("figures", "[" * 100_000),
        ("figures", '{"a": ' + "1" * 10_000 + "}"),
        *(("job", text) for text in ("7", "[]", '"x"', "{}", '{"gpu": 1}', json.dumps(JOB | {"gpus": "8"}))),
        ("job", json.dumps(JOB | {"more": 1})),
        ("state", "unheard"),
        ("state", "done"),
        ("wall_s", "soon"),
        *((column, b"\xff") for column in GOOD if column != "wall_s"),
        ("name", b"bytes"),
    ],
)
def test_a_row_that_is_no_result_is_refused(column: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no result of a sweep"), made(tmp_path, **{column: value}):
        pass


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
NINE = ", ".join(f"'' AS {column}" for column in GOOD)


@pytest.mark.parametrize(
    ("table", "statements"),
    [
        (f"CREATE VIEW trials AS SELECT i AS number, {NINE} FROM ({ENDLESS})", ()),
        (f"CREATE VIEW trials AS SELECT 1 AS number, {NINE.replace(chr(39) * 2, 'hex(randomblob(500000000))', 1)}", ()),
        (TABLE.replace("wall_s REAL NOT NULL", "wall_s REAL NOT NULL, more TEXT DEFAULT (hex(randomblob(9)))"), ()),
        (TABLE, ("CREATE VIEW other AS SELECT 1",)),
        (TABLE, ("CREATE TRIGGER t AFTER INSERT ON trials BEGIN DELETE FROM trials; END",)),
        (TABLE, ("CREATE TABLE other (a)",)),
        (TABLE, ("CREATE INDEX other ON trials (name)",)),
    ],
    ids=["endless view", "huge view", "another column", "another view", "trigger", "another table", "index"],
)
def test_another_schema_is_refused(table: str, statements: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="of another version, or of another program"):
        made(tmp_path, *statements, table=table).__enter__()


def test_what_is_larger_than_any_sweep_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_NBYTES", 10_000)
    with pytest.raises(UsageError, match="too big"):
        made(tmp_path, reason="x" * 20_000).__enter__()
    (tmp_path / FILE).unlink()
    monkeypatch.setattr(store, "MOST_ALL_NBYTES", 100_000)
    with pytest.raises(UsageError, match="larger than what a sweep writes"):
        made(tmp_path, reason="x" * 9_000, rows=20).__enter__()


def test_a_search_without_an_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a way be found to have SQLite search instead of read."""
    monkeypatch.setattr(store, "MOST_STEPS", 10)
    with made(tmp_path, rows=2000) as found:
        assert len(found.results) == 2000, "reading row after row is no search"
        assert found._database is not None
        monkeypatch.setattr(store, "COLUMNS", (f"(SELECT count(*) FROM ({ENDLESS}))", *store.COLUMNS[1:]))
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            list(found._read(found._database))


def test_only_a_file_is_a_database(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(UsageError, match="is no file"):
        Store(tmp_path).__enter__()
