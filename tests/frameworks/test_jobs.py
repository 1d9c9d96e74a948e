"""The jobs of `table.py`: small ones as `pytest -m thorough`, the others as `pytest -m frameworks`.

`PHANTORA_FRAMEWORKS_TABLE=FILE` writes docs/data/frameworks.md anew to FILE, with the results of this test run.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import needs_torch

from . import document
from .job import Job, Outcome
from .running import run
from .table import JOBS


def parameter(job: Job) -> object:
    marks = [pytest.mark.torch, pytest.mark.thorough if job.small else pytest.mark.frameworks]
    if job.fails:
        marks.append(pytest.mark.xfail(reason=job.fails, strict=True))
    return pytest.param(job, id=job.name, marks=marks)


@pytest.fixture(scope="session")
def outcomes() -> Iterator[dict[str, document.Row]]:
    rows: dict[str, document.Row] = {}
    yield rows
    if path := os.environ.get("PHANTORA_FRAMEWORKS_TABLE"):
        before = document.read(document.PATH.read_text())
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(document.render(JOBS, before | rows))


@pytest.mark.timeout(1500)  # compiling on a busy machine
@pytest.mark.parametrize("job", [parameter(job) for job in JOBS if not job.test])
def test_job(job: Job, tmp_path: Path, outcomes: dict[str, document.Row]) -> None:
    needs_torch()
    outcome: Outcome = run(job, tmp_path)
    if outcome.absent:
        pytest.skip(outcome.absent)
    outcomes[document.key(job)] = document.row_of(outcome, datetime.date.today().isoformat())
    assert not outcome.faults, "\n".join([*outcome.faults, outcome.output])
