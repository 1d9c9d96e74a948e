"""Folders of the home folder that isolated servers may write."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emu.contract import isolation
from emu.servers import file_system
from emu.start.advice import READ_ONLY, advice
from phantora_async.config.outputs import writable_of
from phantora_async.errors import UsageError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All of /tmp counts as any other folder here."""
    folder = tmp_path / "home"
    for made in (".cache", ".ssh", "project/results", "other"):
        (folder / made).mkdir(parents=True)
    for made in (".bashrc", "project/train.py", "notes"):
        (folder / made).touch()
    for name in isolation.CACHE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setattr(isolation, "PRIVATE", ("/nowhere/tmp", "/nowhere/shm"))
    monkeypatch.chdir(folder / "other")
    return folder


@pytest.mark.parametrize(
    ("argument", "folder", "impossible"),
    [
        ("{}/project/results", "project/results", None),
        ("--out={}/project/results/new/run", "project/results", None),
        ("{}/project/train.py", "project", None),
        ("../project/results", "project/results", None),
        ("~/project", "project", None),
        ("project", None, None),
        ("{}", None, None),
        ("{}/..", None, None),
        ("{}/notes", None, None),
        ("{}/new/run", None, "new/run"),
        ("--key={}/.ssh", None, None),
        ("{}/.bashrc", None, None),
        ("/usr/lib", None, None),
    ],
)
def test_folders_that_arguments_name(argument: str, folder: str | None, impossible: str | None, home: Path) -> None:
    found = isolation.outputs([argument.format(home)], os.environ)
    assert found == ([str(home / folder)] if folder else [], [str(home / impossible)] if impossible else [])


def job(home: Path, **other: Any) -> Any:
    fields = {"arguments": (), "script": str(home / "project" / "train.py"), "module": False, "writable": ()}
    return SimpleNamespace(**fields | {"runtime_dir": "/run/x", "run_dir": "/run/y", "hook": "/opt/x/lib/h"} | other)


def written(seen: file_system.View, home: Path) -> set[str]:
    return {os.path.relpath(path, home) for path in seen.kept if isolation.is_below(path, str(home))}


def test_a_server_writes_what_the_run_needs_of_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(home / "models"))
    seen = file_system.view(job(home, writable=(str(home / "notes"),)), "/run/x/lib")
    assert str(home) in seen.read_only
    assert written(seen, home) == {"other", "project", ".cache", "models", "notes"}, "the cache is made, too"


def test_home_as_the_working_directory_keeps_its_hidden_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    seen = file_system.view(job(home), "/run/x/lib")
    assert str(home) not in seen.read_only
    assert {str(home / ".ssh"), str(home / ".bashrc")} < set(seen.read_only)
    assert str(home / ".cache") not in seen.read_only


def test_what_the_user_permits_exists(home: Path) -> None:
    assert writable_of(["../project"]) == (str(home / "project"),)
    with pytest.raises(UsageError, match="there is no such folder or file"):
        writable_of([home / "nothing"])


@pytest.mark.parametrize(
    ("error", "host", "known"),
    [
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "/home/u/x"), "laptop", True),
        (RuntimeError("open file failed: Read-only file system"), "node003", True),
        (RuntimeError("open file failed: Read-only file system"), "laptop", False),
        (OSError(errno.EACCES, os.strerror(errno.EACCES), "/home/u/x"), "node003", False),
    ],
)
def test_who_may_not_write_is_told_of_the_option(
    error: Exception, host: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    assert (advice(error) == READ_ONLY) is known
