"""docs/data/frameworks.md is what the runner writes, and agrees with the table of jobs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from . import document
from .document import Row
from .job import Framework, Job, Outcome
from .table import JOBS

ROOT = Path(__file__).parents[2]
FRAMEWORK = Framework("Some framework", ("some",), ("some",), ("some.py", "--flag"))
RUN = Job(FRAMEWORK, "some-run", "it runs", ("--more", "a b"), small=True)
BROKEN = Job(FRAMEWORK, "some-broken", "it fails", fails="no such GPU")


def test_the_document_is_up_to_date() -> None:
    """After a change of the jobs: `python -m tests.frameworks --write` with the names of those that changed."""
    text = document.PATH.read_text()
    assert document.render(JOBS, document.read(text)) == text


def test_names_are_unique() -> None:
    names = [job.name for job in JOBS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("job", [job for job in JOBS if job.test], ids=lambda job: job.name)
def test_named_tests_exist(job: Job) -> None:
    path, _, function = job.test.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_results_are_read_back() -> None:
    row = Row("runs: step 1.50 ms, peak 2.00 GiB", "some 1.0", "7 s", "2026-11-22")
    text = document.render([RUN, BROKEN], {"some-run": row})
    assert "phantora-async run -n RANKS some.py --flag ARGUMENTS" in text
    assert "| it runs | 2 | runs: step 1.50 ms, peak 2.00 GiB | some 1.0 | `some-run` * | `--more 'a b'` |" in text
    assert "| it fails | 2 | fails: no such GPU |" in text
    assert document.read(text) == {"some-run": row, "some-broken": Row("fails: no such GPU")}


def test_what_was_not_run_is_called_so() -> None:
    assert document.read(document.render([RUN], {}))["some-run"] == Row("not run")


def test_faults_are_the_result() -> None:
    outcome = Outcome(("exit code 1", "warns: a | b"), "", "some 1.0", wall_s=3.4)
    assert document.row_of(outcome, "2026-11-22") == Row(
        "fails: exit code 1; warns: a / b", "some 1.0", "3 s", "2026-11-22"
    )
    ran = document.row_of(Outcome((), "", "some 1.0", 1_500_000, 2**31, 7.2), "2026-11-22")
    assert ran == Row("runs: step 1.50 ms, peak 2.00 GiB", "some 1.0", "7 s", "2026-11-22")
