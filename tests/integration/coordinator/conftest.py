from __future__ import annotations

from pathlib import Path

import pytest

from .fake_run import Run


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr("phantora_async.coordinator.run_end.SETTLE_S", 0.01)
    return Run(tmp_path, 2)


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr("phantora_async.coordinator.run_end.SETTLE_S", 0.01)
    return Run(tmp_path, 3)
