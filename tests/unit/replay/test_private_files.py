"""A recording has the script's arguments, among which may be secrets: it is readable by its user alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from formats.files import write_whole
from phantora_async.config.outputs import record_of
from phantora_async.options import RunOptions
from phantora_async.recording.store import PARTIAL, Writer


@pytest.fixture(autouse=True)
def everybody_may_read() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_recording(tmp_path: Path) -> None:
    folder = record_of(RunOptions("train.py", record=tmp_path / "rec"))
    assert folder is not None
    assert mode(folder) == 0o700
    (folder / PARTIAL).touch()
    writer = Writer(folder / "recording")
    assert mode(folder / PARTIAL) == 0o600, "also in the place of one that a killed run has left"
    writer.close({})
    write_whole(folder / "run.json", b"{}", private=True)
    write_whole(folder / "report.json", b"{}")
    assert [mode(folder / name) for name in ("recording", "run.json", "report.json")] == [0o600, 0o600, 0o666]
    write_whole(folder / "run.json", b"{}", private=True)
    assert mode(folder / "run.json") == 0o600


def test_a_folder_that_the_user_has_made_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "rec").mkdir(mode=0o755)
    folder = record_of(RunOptions("train.py", record=tmp_path / "rec"))
    assert folder is not None
    assert mode(folder) == 0o755
