"""`phantora-async bench`: sizes, history and comparison, partial results; with runs that are not real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phantora_async import cli
from phantora_async.bench import history, jobs, measurement, tables
from phantora_async.bench.measurement import Point
from phantora_async.errors import ExitCode, UsageError

CPU = {"ranks": 4.0, "hook": 0.5, "coordinator": 1.0, "kernel": 1.5, "start": 5.0}


def point(case: jobs.Case, **more: Any) -> Point:
    values: dict[str, Any] = {"wall_s": 10.0, "start_s": 6.0, "step_s": 2.0, "cpu": CPU, "pss_nbytes": 50_000_000}
    values["wall_ratio"] = 1.2
    return Point(case.ranks, case.scaling, case.micro_batches, **(values | more))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The results of the next runs: points' fields, or exceptions. Filled by the test."""
    left: list[Any] = []

    def measure(job: jobs.BenchJob, case: jobs.Case, profile: bool) -> tuple[Point, dict[str, Any]]:
        given = left.pop(0)
        if isinstance(given, BaseException):
            raise given
        found = {"coordinator": [{"function": "turn (a.py)", "self_s": 1.0, "total_s": 2.0, "calls": 3}]}
        return point(case, **given), found if profile else {}

    monkeypatch.setattr(measurement, "measure", measure)
    monkeypatch.setattr(measurement, "torch_version", lambda job: "2.11.0")
    return left


def bench(tmp_path: Path, *more: str) -> int:
    return cli.run(["bench", "--history", str(tmp_path / "h.jsonl"), *more])


def entries(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()]


def test_strong_scaling_shares_the_work_of_the_largest_run() -> None:
    assert jobs.cases([8, 16, 32], "weak") == [jobs.Case(n, "weak", 1) for n in (8, 16, 32)]
    assert jobs.cases([8, 16, 32], "strong") == [jobs.Case(n, "strong", 32 // n) for n in (8, 16, 32)]
    assert len(jobs.cases([8, 16], "both")) == 4
    with pytest.raises(UsageError, match="no multiple of 3"):
        jobs.cases([3, 8], "strong")


def test_a_worse_figure_than_that_of_the_last_benchmark_shows(
    tmp_path: Path, runs: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    runs += [{}, {}]
    assert bench(tmp_path, "--ranks", "4,2") == 0
    first = capsys.readouterr().out
    assert [line.split()[:2] for line in first.splitlines()[1:3]] == [["2", "weak"], ["4", "weak"]]
    assert "compared" not in first
    waited = {"wall_ratio": 2.0, "cpu": CPU | {"coordinator": 2.0}}
    runs += [{"step_s": 2.1}, {"step_s": 3.0, "pss_nbytes": 40_000_000} | waited]
    assert bench(tmp_path, "--ranks", "2,4") == 0
    again = capsys.readouterr().out.splitlines()
    words = " ".join(again[-3].split()), " ".join(again[-2].split())
    assert words == (
        "2 weak s/step +5%, CPU +0%, coordinator +0%, wall x cores / CPU +0%, memory +0%",
        "4 weak s/step +50% WORSE, CPU +8%, coordinator +100% WORSE, wall x cores / CPU +67% WORSE, memory -20%",
    )
    assert len(entries(tmp_path)) == 2


def test_only_the_same_machine_and_job_are_compared(tmp_path: Path) -> None:
    job = jobs.BenchJob("tiny", 3, None, (), ())
    now = history.entry(job, [point(jobs.Case(2, "weak", 1))], "2.11.0", 0.0, True)
    path = tmp_path / "h.jsonl"
    path.write_text("not JSON\n[1]\n")
    for other in ({"machine": {}}, {"job": jobs.BenchJob("1b", 3, None, (), ()).key()}, {"schema": 0}):
        history.append(path, now | other)
    assert history.comparable(path, now) is None
    history.append(path, now | {"at": "then"})
    history.append(path, now | {"machine": {}})
    found = history.comparable(path, now)
    assert found is not None
    assert found["at"] == "then"


def test_an_interrupt_keeps_the_runs_before_it(
    tmp_path: Path, runs: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    runs += [{}, KeyboardInterrupt()]
    assert bench(tmp_path, "--ranks", "2,4,8", "--plot", str(tmp_path / "p.svg")) == ExitCode.INTERRUPTED
    assert "interrupted after 1 of 3 runs" in capsys.readouterr().err
    (entry,) = entries(tmp_path)
    assert entry["complete"] is False
    assert [one["ranks"] for one in entry["points"]] == [2]
    assert (tmp_path / "p.svg").read_text().count("<svg") == 1


def test_a_run_that_fails_is_shown_and_does_not_end_the_others(
    tmp_path: Path, runs: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    runs += [{"failure": "rank 1 was ended by SIGKILL", "cpu": {}}, {}]
    assert bench(tmp_path, "--ranks", "2,4") != 0
    told = capsys.readouterr()
    assert "failed: rank 1 was ended by SIGKILL" in told.out
    assert "1 of 2 runs failed: 2 ranks" in told.err
    assert len(entries(tmp_path)[0]["points"]) == 2


def test_a_profile_names_functions(tmp_path: Path, runs: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    runs += [{}, {}, {}]
    assert bench(tmp_path, "--ranks", "2,4", "--profile") == 0
    assert not runs, "a run of its own, of the last size"
    assert "turn (a.py)" in capsys.readouterr().out
    found = {"rank": {"samples": 4, "functions": [{"function": "f (b.py)", "self": 1, "inside": 4}]}}
    assert tables.profile_lines(found)[-1].split() == ["25.0%", "100.0%", "f", "(b.py)"]


@pytest.mark.parametrize("wrong", [["--ranks", "eight"], ["--ranks", "0"], ["--steps", "1"], ["missing.py"]])
def test_what_cannot_be_measured_is_refused(tmp_path: Path, wrong: list[str], runs: list[Any]) -> None:
    assert bench(tmp_path, *wrong) == ExitCode.USAGE
    assert not (tmp_path / "h.jsonl").exists()
