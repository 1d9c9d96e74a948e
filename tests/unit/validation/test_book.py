"""The book of truth: which jobs it has, the pages that it writes, and how wide intervals must be."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from phantora_async import cli
from phantora_async.errors import UsageError
from phantora_async.report.interval import CALIBRATION
from phantora_async.validation import book, calibration, emulation, kept_rows, page
from phantora_async.validation.emulation import Emulated
from phantora_async.validation.kept_rows import KeptRow
from phantora_async.validation.truth import JobTruth

SHIPPED = Path(__file__).parents[3] / "laboratory" / "programs" / "truth.toml"
PAGE = "".join(f"<!-- validate: {name} -->\n<!-- end -->\n" for name in ("families", "intervals"))
FAMILY = '[[family]]\nname = "plain"\ngpu = "h200"\nscript = "jobs.py"\nfitted = false\njobs = ["a"]\n'
NOT_RUN = '[[not_run]]\ngpu = "h200"\nwhy = "its script was lost"\njobs = ["b"]\n'
ROW = KeptRow(
    "plain",
    False,
    "a",
    "h200",
    1,
    False,
    [0.1],
    0.1,
    0.09,
    0.12,
    1.0,
    "gpu",
    0.0,
    0.0,
    "99% compute",
    "",
    "abc",
    "2026-11-25",
    "2.11.0",
)


def made(folder: Path, text: str) -> Path:
    truth = [{"job": name, "world": 1, "free_running_step_s": 0.1} for name in ("a", "b")]
    (folder / "real.jsonl").write_text("".join(json.dumps(one) + "\n" for one in truth))
    (folder / "page.md").write_text(PAGE)
    head = 'rows = "rows.jsonl"\npage = "page.md"\ndetails = "details.md"\n'
    head += '[[truth]]\ngpu = "h200"\nfiles = ["real.jsonl"]\noptions = "--cluster mine.toml"\n'
    path = folder / "truth.toml"
    path.write_text(head + text)
    return path


def test_every_measured_job_of_the_repository_is_run_or_said_not_to_be() -> None:
    found = book.read(SHIPPED)
    data = SHIPPED.parents[2] / "laboratory" / "rows"
    measured = {path.name for path in data.glob("*.jsonl") if '"free_running_step_s"' in path.read_text()[:4000]}
    # Parts of a job's host time; what was simulated; the memory of two jobs, ten times.
    measured -= {"fsdp-scopes-h200.jsonl", "accuracy.jsonl", "ddp-peaks-h200-x4.jsonl"}
    assert [name for name in measured if name not in SHIPPED.read_text()] == []
    assert {job.job for _, job in found.jobs()} >= {"gpt2_1gpu_b8", "q_llama3b_tp4_b2_s2048", "ds1b_z3"}


def test_scripts_of_the_book_name_its_jobs() -> None:
    texts: dict[Path, str] = {}
    for family, job in book.read(SHIPPED).jobs():
        text = texts.setdefault(family.command.script, family.command.script.read_text())
        stem = job.job.removesuffix(f"_{job.world}gpu")
        assert stem in text, job.job


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (FAMILY, r"in no \[\[family\]\] or \[\[not_run\]\]: b \(h200\)"),
        (FAMILY + NOT_RUN.replace('"b"', '"b", "a"'), "a: in two places"),
        (FAMILY + NOT_RUN.replace('"b"', '"c"'), "c: not measured on h200"),
        (FAMILY.replace('gpu = "h200"', 'gpu = "b200"'), "b200"),
    ],
)
def test_a_book_that_leaves_out_or_invents_a_job_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        book.read(made(tmp_path, text))


def test_all_runs_the_book_keeps_rows_and_writes_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path, FAMILY + NOT_RUN + '[[off]]\njobs = ["a"]\ncause = "a slow host"\n')
    asked: list[tuple[str, ...]] = []

    def fake(command: emulation.JobCommand, job: JobTruth) -> Emulated:
        asked.append(command.run_options)
        interval = {"low_ns": 100, "high_ns": 140, "bound": "gpu"}
        report = {"simulated": {"step": {"median_ns": 120, "interval": interval}}}
        return Emulated(0.12, None, None, report, 1.0, "", "2.11.0")

    monkeypatch.setattr(emulation, "emulate", fake)
    assert cli.run(["validate", "--all", str(path), "--run-options", "--python py"]) == 0
    assert asked == [("--cluster", str(tmp_path / "mine.toml"), "--python", "py")]
    (row,) = kept_rows.read(tmp_path / "rows.jsonl").values()
    assert (row.simulated, row.low, row.fitted, row.torch) == (0.12, pytest.approx(0.1), False, "2.11.0")
    text = (tmp_path / "page.md").read_text()
    assert "| plain (h200) | 1 | 20.0% | 20.0% | 1/1 | 33% |" in text
    assert "Measured and not run: 1 (details.md says why)." in text
    details = (tmp_path / "details.md").read_text()
    assert "- a slow host: a +20.0%\n" in details
    assert "| a | 1 | 100.0 | 120.0 | +20.0% |" in details
    assert "its script was lost: b." in details
    asked.clear()
    (tmp_path / "page.md").write_text(PAGE)
    assert cli.run(["validate", "--all", str(path), "--pages"]) == 0
    assert not asked
    assert (tmp_path / "page.md").read_text() == text


def test_a_failed_job_is_counted_and_ends_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path, FAMILY + NOT_RUN)
    monkeypatch.setattr(emulation, "emulate", lambda *_: Emulated(None, None, None, {}, 1.0, "error: no"))
    assert cli.run(["validate", "--all", str(path)]) == 1
    assert "| plain (h200) | 0 of 1, 1 failed |" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize("more", [["--script", "x.py"], ["real.jsonl"]])
def test_all_takes_nothing_that_the_book_says(tmp_path: Path, more: list[str]) -> None:
    assert cli.run(["validate", "--all", str(made(tmp_path, FAMILY + NOT_RUN)), *more]) == 2


def of(real: list[float], **more: Any) -> KeptRow:
    return replace(ROW, real=real, simulated=1.0, low=0.9, high=1.2, **more)


def test_a_score_is_the_distance_in_halves_of_the_unscaled_interval() -> None:
    assert calibration.scores(of([1.1, 0.95, 1.4])) == [pytest.approx(0.5), pytest.approx(0.5), pytest.approx(2.0)]
    assert calibration.scores(of([1.1], scale=2.0)) == [pytest.approx(1.0)]


def test_the_factor_holds_nine_in_ten_and_jobs_count_once() -> None:
    assert calibration.factor_of([[0.1 * n] for n in range(1, 10)]) == pytest.approx(0.9)  # the 9th of 9
    assert calibration.factor_of([[0.1 * n] for n in range(1, 20)]) == pytest.approx(1.8)  # the 18th of 19
    assert calibration.factor_of([[1.0]] * 8) == inf  # too few to say
    many_runs_of_one = [[0.1 * n] for n in range(1, 19)] + [[5.0] * 100]
    assert calibration.factor_of(many_runs_of_one) == pytest.approx(1.8)


def test_jobs_of_a_fit_calibrate_nothing() -> None:
    rows = [of([1.0 + 0.02 * n], job=str(n)) for n in range(10)]
    (found,) = calibration.calibrate([*rows, of([9.0], job="fitted", fitted=True)])
    assert (found.name, found.jobs, found.holds_as_they_are) == ("gpu", 10, 1.0)
    assert found.factor == pytest.approx(0.9)  # 1.18 is 0.9 of the upper half
    assert found.needed_width == pytest.approx(0.27)


def test_a_page_names_jobs_that_are_off_worst_first(tmp_path: Path) -> None:
    found = book.read(made(tmp_path, FAMILY + NOT_RUN))
    rows = [of([1.2], job="a"), of([1.01], job="near"), of([0.5], job="far", gpu="h100")]
    assert page.off(found, rows) == "- not found: far (h100) +100.0%, a -16.7%"


def test_the_shipped_calibration_is_what_the_kept_rows_ask_for() -> None:
    """After `validate --all`, write the factors that docs/accuracy.md shows into CALIBRATION."""
    rows = kept_rows.read(book.read(SHIPPED).rows).values()
    assert pytest.approx({one.name: one.factor for one in calibration.calibrate(rows)}, abs=0.05) == CALIBRATION
