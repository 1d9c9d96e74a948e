"""The folder of a run's sockets: where there is room, and never in a full one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from phantora_async.launch import runtime


def test_a_full_folder_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, real = tmp_path / "full", os.statvfs
    full.mkdir()
    monkeypatch.setenv("TMPDIR", str(full))
    monkeypatch.setattr(runtime, "MAX_TMPDIR", 1000)
    assert runtime._runtime_folder().parent == full
    monkeypatch.setattr(
        os, "statvfs", lambda path: SimpleNamespace(f_bavail=1, f_frsize=4096) if path == str(full) else real(path)
    )
    made = runtime._runtime_folder()
    made.rmdir()
    assert made.parent != full


def test_folders_of_killed_runs_are_removed_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(runtime, "MAX_TMPDIR", 1000)
    killed = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, signal\n"
            "from phantora_async.launch import runtime\n"
            "runtime.MAX_TMPDIR = 1000\n"
            "print(runtime.make_runtime().folder, flush=True)\n"
            "os.kill(os.getpid(), signal.SIGKILL)",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    left = Path(killed.stdout.strip())
    assert (left / "ranks").is_dir()
    for other in ("phantora-mine", "phantora-test-1"):
        (tmp_path / other).mkdir()
        (tmp_path / other / "file").touch()
    linked = tmp_path / "phantora-linked"
    linked.symlink_to(left)
    running = runtime.make_runtime()
    second = runtime.make_runtime()
    assert sorted(tmp_path.iterdir()) == sorted(
        [tmp_path / "phantora-mine", tmp_path / "phantora-test-1", linked, running.folder, second.folder]
    )
    running.remove()
    second.remove()
    assert not running.folder.exists()
