"""The folder of a run's sockets: where there is room, and never in a full one."""

from __future__ import annotations

import os
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
