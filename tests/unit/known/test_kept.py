"""Results are kept for one user, within a bound, and whatever else is in the folder is none."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from phantora_async.known import kept
from phantora_async.known.inputs import state_of
from phantora_async.known.kept import Result
from phantora_async.known.notes import Flag


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return kept.folder()


def result(script: Path, report: str = '{"simulated": 1}') -> Result:
    inputs = {str(script): state_of(str(script), Flag.READ)}
    return Result("2026-11-29T20:00:00+0000", "runs/1", report, "loss 1.0\n", inputs)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("print(1)")
    return path


def test_a_result_is_found_until_an_input_changes_and_again_after(script: Path, place: Path) -> None:
    assert kept.find("key") is None
    first = result(script)
    assert kept.keep("key", first) == ""
    assert kept.find("key") == first
    assert kept.find("other") is None
    script.write_text("print(2)")
    assert kept.find("key") is None
    second = result(script, '{"simulated": 2}')
    assert kept.keep("key", second) == ""
    assert kept.find("key") == second
    script.write_text("print(1)")
    assert kept.find("key") == first
    assert place.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}


def test_results_that_were_used_least_recently_go_first(
    script: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, key in enumerate(("a", "b")):
        kept.keep(key, result(script))
        (path,) = place.glob(f"{key}-*")
        os.utime(path, ns=(number, number))
    nbytes = sum(path.stat().st_size for path in place.iterdir())
    monkeypatch.setattr(kept, "MOST_NBYTES", nbytes + 1)
    assert kept.find("a") is not None  # it is used now
    kept.keep("c", result(script))
    assert [kept.find(key) is not None for key in "abc"] == [True, False, True]


def test_a_script_that_is_edited_to_and_fro_has_few_results(script: Path, place: Path) -> None:
    for number in range(kept.MOST_OF_KEY + 3):
        script.write_text(f"print({number})")
        assert kept.keep("key", result(script)) == ""
    assert len(list(place.iterdir())) == kept.MOST_OF_KEY


@pytest.mark.parametrize("content", [b"", b"no result", b"x\x9c\x03\x00\x00\x00\x00\x01"])
def test_a_file_that_is_no_result_is_removed(script: Path, place: Path, content: bytes) -> None:
    kept.keep("key", result(script))
    (path,) = place.iterdir()
    path.write_bytes(content)
    assert kept.find("key") is None
    assert list(place.iterdir()) == []


def test_a_result_of_another_form_is_none(script: Path, place: Path) -> None:
    kept.keep("key", dataclasses.replace(result(script), began=1))  # type: ignore[arg-type]
    assert kept.find("key") is None


def test_a_report_that_is_too_large_is_not_kept(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_RESULT_NBYTES", 100)
    assert kept.keep("key", result(script, "x" * 1000)) == "its report is too large"
    assert kept.find("key") is None


def test_nothing_is_kept_where_others_can_write(script: Path, place: Path) -> None:
    place.mkdir(parents=True)
    place.chmod(0o777)
    assert "is not this user's alone" in kept.keep("key", result(script))
    assert kept.find("key") is None


def test_a_folder_that_cannot_be_made_is_told(script: Path, place: Path) -> None:
    place.parent.mkdir(parents=True)
    place.touch()
    assert kept.keep("key", result(script)) == f"{place}: File exists"
