"""The surroundings of a command: closed streams, a working directory that has gone, limits, long paths."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from emu.start import supported
from phantora_async import cli
from phantora_async.errors import EnvironmentUnusable, ExitCode
from phantora_async.launch import limits
from phantora_async.launch.runtime import HOOK, make_runtime


def shell(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in a shell; it may use $P for phantora-async."""
    path = str(Path(cli.__file__).parents[1])
    program = f"{sys.executable} -m phantora_async"
    return subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
        env=os.environ | {"P": program, "PYTHONPATH": path} | environment,
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(tmp_path: Path, closed: str) -> None:
    done = shell(f"$P profiles list {closed}", tmp_path)
    assert done.returncode == 0, done
    assert ("h200" in done.stdout) == (">&-" not in closed.replace("2>&-", ""))
    assert done.stderr == ""


def test_streams_that_lack_characters(tmp_path: Path) -> None:
    done = shell("$P profiles show h\u20ac", tmp_path, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert done.returncode == ExitCode.USAGE, done
    assert "no profile is called 'h" in done.stderr


def test_a_working_directory_that_has_gone(tmp_path: Path) -> None:
    done = shell("mkdir gone && cd gone && rmdir ../gone && $P profiles list", tmp_path)
    assert done.returncode == ExitCode.USAGE, done
    assert done.stderr.startswith("error: the working directory cannot be used")
    assert "Traceback" not in done.stderr


def test_a_long_tmpdir_is_not_used_for_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not HOOK.is_file():
        pytest.skip("needs the built hook library")
    folder = tmp_path / ("x" * 75)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    runtime = make_runtime()
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(runtime.socket))
    finally:
        for path in sorted(runtime.folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        runtime.folder.rmdir()


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[int, int]]:
    """Limits that the test sets; all others are infinite."""
    now: dict[int, tuple[int, int]] = {}
    monkeypatch.setattr(resource, "getrlimit", lambda which: now.get(which, (resource.RLIM_INFINITY,) * 2))
    monkeypatch.setattr(resource, "setrlimit", lambda which, values: now.update({which: values}))
    return now


def test_too_few_open_files(limited: dict[int, tuple[int, int]]) -> None:
    limited[resource.RLIMIT_NOFILE] = (64, 100)
    with pytest.raises(EnvironmentUnusable, match="needs 130 open files, but a process may open 100"):
        limits.check(1)
    limited[resource.RLIMIT_NOFILE] = (64, 1000)
    limits.check(1)
    assert limited[resource.RLIMIT_NOFILE] == (130, 1000)
    limits.check(256)
    assert limited[resource.RLIMIT_NOFILE] == (640, 1000)


@pytest.mark.parametrize(
    ("which", "most", "hint"),
    [
        (resource.RLIMIT_AS, 64 << 30, "ulimit -v"),
        (resource.RLIMIT_FSIZE, 1 << 20, "ulimit -f"),
        (resource.RLIMIT_CPU, 10, "ulimit -t"),
        (resource.RLIMIT_NPROC, 2, "ulimit -u"),
    ],
)
def test_limits_that_no_run_can_keep_are_raised_or_named(
    limited: dict[int, tuple[int, int]], monkeypatch: pytest.MonkeyPatch, which: int, most: int, hint: str
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    limited[which] = (most, most)
    with pytest.raises(EnvironmentUnusable) as raised:
        limits.check(4)
    assert raised.value.hint.startswith(hint)
    limited[which] = (most, resource.RLIM_INFINITY)
    limits.check(4)
    assert limited[which][0] > most or limited[which][0] == resource.RLIM_INFINITY


OTHER_VERSION = """
import sys, sysconfig
sys.version_info = {version}
sysconfig.get_config_vars()["Py_GIL_DISABLED"] = {free}
"""


@pytest.mark.parametrize(
    ("version", "free", "complaint"),
    [
        ((3, 10, 13), 0, "ranks need Python 3.11 or newer"),
        ((3, 14, 0), 1, "is a free-threaded build of Python"),
    ],
)
def test_a_python_that_cannot_run_ranks(tmp_path: Path, version: tuple[int, ...], free: int, complaint: str) -> None:
    """The interpreter of the ranks says another version than its own: `sitecustomize` is imported at its start."""
    if not HOOK.is_file():
        pytest.skip("needs the built hook library")
    (tmp_path / "sitecustomize.py").write_text(OTHER_VERSION.format(version=version, free=free))
    (tmp_path / "python").write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "script.py").touch()
    done = shell("$P run -n 2 --python ./python script.py", tmp_path)
    assert done.returncode == ExitCode.ENVIRONMENT, done
    assert complaint in done.stderr.splitlines()[0]
    assert done.stderr.splitlines()[1].startswith("hint: install PyTorch for another Python")


def test_a_torch_that_is_too_old(tmp_path: Path) -> None:
    if not HOOK.is_file():
        pytest.skip("needs the built hook library")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").touch()
    (tmp_path / "torch/version.py").write_text("__version__ = '2.8.0+cu128'\ncuda: Optional[str] = '12.8'\n")
    (tmp_path / "script.py").touch()
    path = f"{tmp_path}:{Path(cli.__file__).parents[1]}"
    done = shell(f"PYTHONPATH={path} $P run -n 2 script.py", tmp_path)
    assert done.returncode == ExitCode.ENVIRONMENT, done
    assert "is version 2.8.0+cu128; ranks need PyTorch 2.9 or newer" in done.stderr


@pytest.mark.parametrize("version", ["2.9.0", "2.15.0+cu132", "3.0.0a0+git123", "unknown"])
def test_other_torches_are_tried(version: str) -> None:
    supported.check_torch(version)
