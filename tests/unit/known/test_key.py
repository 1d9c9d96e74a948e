"""The key of a run changes with all that is known before the run and decides its result, and with nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from phantora_async.config import resolve
from phantora_async.config.known import why_not_known
from phantora_async.known import key
from phantora_async.options import RunOptions
from profiles.descriptions import catalog


def key_of(folder: Path, *arguments: str, **options: Any) -> str:
    config = resolve(RunOptions(folder / "train.py", arguments, known=True, **options))
    try:
        return key.key_of(config)
    finally:
        config.claimed.lock.close()


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_arguments_options_and_environment_are_part_of_it(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "as it is": key_of(job, world_size=2),
        "argument": key_of(job, "--layers", "2", world_size=2),
        "ranks": key_of(job, world_size=4),
        "gpu": key_of(job, world_size=2, gpu="h100"),
        "budget": key_of(job, world_size=2, max_memory="1GiB"),
        "steps": key_of(job, world_size=2, steps=3),
        "fault": key_of(job, world_size=2, fault=["gpu 1 at 0.5x from 1s"]),
        "folded": key_of(job, world_size=8, fold="dp=8"),
    }
    monkeypatch.setenv("BATCH", "8")
    found["environment"] = key_of(job, world_size=2)
    monkeypatch.delenv("BATCH")
    assert len(set(found.values())) == len(found)
    monkeypatch.setenv("OLDPWD", "/usr")
    assert key_of(job, world_size=2) == found["as it is"]


def test_where_results_go_is_no_part_of_it(job: Path) -> None:
    before = key_of(job)
    assert key_of(job, run_dir="elsewhere", report="r.json", show_ranks="all", progress=False, again=True) == before
    assert key_of(job, warm=True) == before


def test_the_content_of_a_description_is_part_of_it(job: Path) -> None:
    described = job / "mine.toml"
    shutil.copy(catalog.path_of("h100"), described)
    before = key_of(job, gpu=described)
    described.write_text(described.read_text() + "# edited\n")
    assert key_of(job, gpu=described) != before


def test_the_package_the_folder_and_the_machine_are_part_of_it(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of(job)
    with monkeypatch.context() as patched:
        patched.setattr(key, "_package", lambda: "another version")
        assert key_of(job) != before
    with monkeypatch.context() as patched:
        patched.setattr(key, "machine", lambda: ["another machine"])
        assert key_of(job) != before
    (job / "below").mkdir()
    monkeypatch.chdir(job / "below")
    assert key_of(job) != before


def test_the_package_is_known_by_the_state_of_its_files() -> None:
    key._package.cache_clear()
    assert len(key._package()) == 64


def test_a_value_that_shows_an_address_cannot_be_part_of_it() -> None:
    with pytest.raises(TypeError):
        key._canonical([object()])
    assert key._canonical({"b": {2, 1}, "a": (1,)}) == ["mapping", ["a", ["list", 1]], ["b", ["set", 1, 2]]]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, ""),
        ({"trace": "t.json"}, "--trace is given"),
        ({"record": "rec"}, "--record is given"),
        ({"preload": ["mine"]}, "--preload is given"),
        ({"host": "measured"}, "--host measured is given, whose times differ from run to run"),
        ({"loaders": "modelled"}, "--loaders modelled is given, whose times differ from run to run"),
    ],
)
def test_a_run_that_leaves_more_behind_or_measures_is_never_known(options: dict[str, Any], reason: str) -> None:
    assert why_not_known(RunOptions("train.py", **options)) == reason
