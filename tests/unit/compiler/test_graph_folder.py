"""The folder of the graph cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from emu.compiler import graph_cache


def test_a_folder_for_each_version_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_cache.changes, "when_imported", lambda key, change: None)
    monkeypatch.setenv(graph_cache.FOLDER, str(tmp_path))
    for _ in range(2):  # the second time in a process that inherits the first one's environment
        graph_cache.install("2.11.0+cu130")
        assert os.environ[graph_cache.FOLDER] == str(tmp_path / "torch-2.11.0+cu130")
