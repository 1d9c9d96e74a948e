"""`phantora-async validate`: truth files, distances from a range, tables, and the command on a stand-in run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phantora_async import cli
from phantora_async.errors import UsageError
from phantora_async.validation import comparison, emulation, kernels, tables, truth
from phantora_async.validation.emulation import Emulated


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def job(**more: Any) -> dict[str, Any]:
    return {"job": "a", "world": 2, "free_running_step_s": 0.1, "max_alloc": 1000, "max_reserved": 2000} | more


def emulated(speed: float | None, **more: Any) -> Emulated:
    values: dict[str, Any] = {"max_alloc": 1000, "max_reserved": 2000, "report": {}, "wall_s": 1.0, "failure": ""}
    return Emulated(speed=speed, **(values | more))


def test_several_measurements_of_a_job_span_a_range(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", job(), job(free_running_step_s=0.12, max_alloc=1010))
    second = write(tmp_path / "b.jsonl", job(free_running_step_s=0.08))
    (found,) = truth.load([first, second]).jobs
    assert (found.runs, found.speed, found.max_alloc) == (3, truth.Range(0.08, 0.12), truth.Range(1000, 1010))


def test_a_line_without_a_speed_is_one_of_memory(tmp_path: Path) -> None:
    memory = {"job": "a", "world": 2, "max_alloc": 990, "max_reserved": 2200}
    (found,) = truth.load([write(tmp_path / "a.jsonl", memory, job())]).jobs
    assert (found.runs, found.speeds) == (1, (0.1,))
    assert (found.max_alloc, found.max_reserved) == (truth.Range(990, 1000), truth.Range(2000, 2200))


@pytest.mark.parametrize(("value", "error"), [(0.10, 0.0), (0.08, 0.0), (0.12, 0.0), (0.06, -0.25), (0.15, 0.25)])
def test_an_error_is_the_distance_from_the_range(value: float, error: float) -> None:
    assert truth.Range(0.08, 0.12).error(value) == pytest.approx(error)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "truth.jsonl:2: not JSON"),
        ("[1]", "truth.jsonl:2: expected a JSON object"),
        ({"world": 2}, "truth.jsonl:2: job: expected a name"),
        ({"job": "a", "world": 0}, "truth.jsonl:2: world: expected a positive integer"),
        ({"job": "b", "world": 1, "free_running_step_s": "fast"}, "truth.jsonl:2: free_running_step_s"),
        ({"job": "b", "world": 1}, "truth.jsonl:2: tps_median: expected a positive number"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: Any, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        truth.load([write(tmp_path / "truth.jsonl", job(), line)])
    assert complaint in caught.value.message


def test_the_interval_is_applied_to_what_the_script_printed(tmp_path: Path) -> None:
    (real,) = truth.load([write(tmp_path / "t.jsonl", job())]).jobs
    report = {"simulated": {"step": {"median_ns": 200, "interval": {"low_ns": 180, "high_ns": 260}}}}
    row = comparison.compare(real, emulated(0.09, report=report))
    assert (row.interval_low, row.interval_high) == (pytest.approx(0.081), pytest.approx(0.117))
    assert row.in_interval
    row = comparison.compare(real, emulated(0.07, report=report))
    assert row.in_interval is False


@pytest.mark.parametrize(("real_nbytes", "simulated"), [(1000, 1000), (950, 950), (700, 800), (1200, 1000)])
def test_memory_that_depends_on_timing_is_compared_as_a_range(tmp_path: Path, real_nbytes: int, simulated: int) -> None:
    """The script told 1000, the most; the report says that it may be 200 less. The next figure counts."""
    (real,) = truth.load([write(tmp_path / "t.jsonl", job(max_alloc=real_nbytes))]).jobs
    memory = {"allocated_peak_nbytes": 1500, "allocated_least_nbytes": 1300}
    row = comparison.compare(real, emulated(0.1, report={"simulated": {"ranks": [{"memory": memory}]}}))
    assert row.max_alloc is not None
    assert row.max_alloc.simulated == simulated
    assert row.max_alloc.error == pytest.approx(simulated / real_nbytes - 1)


def test_a_rate_is_read_from_log_lines_after_its_warm_up(tmp_path: Path) -> None:
    (real,) = truth.load([write(tmp_path / "t.jsonl", {"job": "t", "world": 4, "tps_median": 8000})]).jobs
    assert real.speed_is_rate
    output = "".join(
        f"step: {step}  loss: 1  tps: {rate}\n" for step, rate in enumerate([1, 2, 3, 4, "8,100", "7,900"])
    )
    assert emulation._rate(output) == 8000
    assert emulation._rate("tps: 5\n") is None


def test_a_job_that_fails_has_a_row_that_says_why(tmp_path: Path) -> None:
    (real,) = truth.load([write(tmp_path / "t.jsonl", job())]).jobs
    row = comparison.compare(real, emulated(None, failure="error: out of memory"))
    assert "failed: error: out of memory" in tables.line(row)
    summary = comparison.summarise([row, comparison.compare(real, emulated(0.11))])
    assert (summary.jobs, summary.failed, summary.worst_job) == (1, 1, "a")
    assert summary.mean_error == pytest.approx(0.1)


def test_the_table_takes_its_place_in_a_document(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.md"
    path.write_text("before\n<!-- validate: jobs -->\nold\n<!-- end -->\nafter\n")
    tables.write_into(path, "jobs", "new")
    assert path.read_text() == "before\n<!-- validate: jobs -->\nnew\n<!-- end -->\nafter\n"
    with pytest.raises(UsageError, match="no place"):
        tables.write_into(path, "other", "new")


def test_the_command_compares_and_reports_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = write(tmp_path / "truth.jsonl", job(), job(job="broken"))
    script = write(tmp_path / "jobs.py", "")

    def fake(command: emulation.JobCommand, which: truth.JobTruth) -> Emulated:
        line = command.line(which, tmp_path)
        assert line[line.index(str(script)) + 1 :] == ["--jobs", which.job, "--steps", "4", "--warm", "2"]
        assert "--gpu" in line
        return emulated(None, failure="error: no") if which.job == "broken" else emulated(0.11)

    monkeypatch.setattr(emulation, "emulate", fake)
    arguments = ["validate", str(real), "--script", str(script), "--run-options", "--gpu h100"]
    assert cli.run(arguments) == 1
    printed = capsys.readouterr()
    assert "| a | 2 | 100.0 | 110.0 ms | +10.0% |" in printed.out
    assert "1 of 2 jobs failed: broken" in printed.err
    assert cli.run([*arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["summary"]["failed"] == 1
    assert cli.run(["validate", str(real), "--script", str(script), "--only", "nobody"]) == 2


def test_collectives_are_compared_without_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"op": "all_reduce", "world": 2, "bytes": 1 << size, "us_median": 10.0 + 2 ** (size - 18)} for size in (12, 26)
    ]
    measured = write(tmp_path / "nccl.jsonl", *rows, rows[0] | {"op": "gather"})
    with pytest.raises(SystemExit, match="0"):
        cli.main(["validate", str(measured)])
    assert "NCCL, 2 measured kernels" in capsys.readouterr().out
    assert cli.run(["validate", str(measured), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["collectives"]
    assert [(one["op"], one["nbytes"]) for one in found] == [("all_reduce", 1 << 12), ("all_reduce", 1 << 26)]
    assert 0 < found[0]["simulated_us"] < found[1]["simulated_us"]


def test_a_trace_is_compared_by_family(tmp_path: Path) -> None:
    fill = {"name": "void vectorized_elementwise_kernel<4, FillFunctor<float> >", "cat": "kernel", "ph": "X", "ts": 0}
    args = {"grid": [64, 1, 1], "block": [128, 1, 1], "stream": 7, "correlation": 1}
    (tmp_path / "a.r0.json").write_text(json.dumps({"traceEvents": [fill | {"dur": 2.0, "args": args}]}))
    path = kernels.find(tmp_path, "a")
    assert path == tmp_path / "a.r0.json"
    assert kernels.find(tmp_path, "b") is None
    assert kernels.compare(path, "a", {}).problem.startswith("no kernels were simulated")
    simulated = {"gpu": "h200", "step": {"counted": 2}, "kernels": {"window": "steps", "signatures": []}}
    report = {"simulated": simulated | {"kernels": simulated["kernels"] | {"ranks": [{"ranks": [0], "launches": []}]}}}
    (family,) = kernels.compare(path, "a", report).families
    assert (family.real_calls, family.real_ms, family.simulated_calls) == (1, pytest.approx(0.002), 0)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"traceEvents": 1}', '{"traceEvents": [1]}'])
def test_what_is_no_trace_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"a\.json: not a trace of torch\.profiler"):
        kernels.compare(path, "a", {})
