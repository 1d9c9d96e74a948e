"""The run directory: private, one run at a time, and never the user's own files."""

from __future__ import annotations

import resource
import stat
from pathlib import Path

import pytest

from phantora_async.errors import NotWritten, UsageError
from phantora_async.run_dir import MARKER, claim


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_new_one_is_private(tmp_path: Path) -> None:
    claimed = claim(tmp_path / "deep" / "run", 2)
    assert stat.S_IMODE(claimed.path.stat().st_mode) == 0o700
    assert names(claimed.path) == {MARKER, "device.txt"}


def test_one_that_the_user_has_made_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    claim(folder, 2)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_files_of_the_user_s_stay_and_the_run_does_not_start(tmp_path: Path) -> None:
    for name in ("report.json", "rank1.log", "notes.txt"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match=r"rank1\.log, report\.json in it would be overwritten"):
        claim(tmp_path, 2)
    assert names(tmp_path) == {"report.json", "rank1.log", "notes.txt"}


def test_files_of_an_earlier_run_go(tmp_path: Path) -> None:
    with claim(tmp_path, 4).lock:
        for rank in range(4):
            (tmp_path / f"rank{rank}.log").write_text("old")
        (tmp_path / "report.json").write_text("old")
        (tmp_path / "rank7.log").write_text("the user's: that run had four ranks")
    with claim(tmp_path, 2).lock:
        assert names(tmp_path) == {MARKER, "device.txt", "rank7.log"}
    with pytest.raises(UsageError, match=r"rank7\.log in it would be overwritten"):
        claim(tmp_path, 8)


def test_a_marker_that_someone_has_edited_removes_nothing_else(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text("precious.txt\n../precious.txt\nrank0.log\nrank9.stack\n")
    (tmp_path / "precious.txt").write_text("kept")
    claim(tmp_path, 1)
    assert "precious.txt" in names(tmp_path)


def test_two_runs_do_not_share_one(tmp_path: Path) -> None:
    first = claim(tmp_path / "run", 2)
    with pytest.raises(UsageError, match="another run is using it"):
        claim(tmp_path / "run", 2)
    first.lock.close()
    claim(tmp_path / "run", 2)


def test_where_nothing_can_be_written_nothing_is_left(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
    try:
        with pytest.raises(NotWritten, match="--run-dir"):
            claim(tmp_path / "run", 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / "run").exists()
