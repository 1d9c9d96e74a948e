"""A report as a run writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.report.test_report import document, train
from tests.unit.virtual_time.scripted import scripts


@pytest.fixture
def run_report(tmp_path: Path) -> Path:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document(*[train(script, 6, marked=True) for script in scripts(2)])))
    return path
