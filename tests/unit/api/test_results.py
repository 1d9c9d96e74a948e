"""A report as typed objects: figures, lists, tables, pictures, what a notebook shows."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import phantora_async
from phantora_async import errors, pages
from phantora_async.api.pictures import LANES
from phantora_async.api.results import Run
from phantora_async.api.running import BOOTSTRAP
from phantora_async.errors import EnvironmentUnusable, NotWritten, PhantoraError, UsageError
from phantora_async.options import RunOptions

from ..report.test_report import document, train
from ..virtual_time.scripted import scripts


def report(ranks: int = 2, *, marked: bool = True) -> dict[str, Any]:
    return document(*(train(script, 6, marked=marked) for script in scripts(ranks)))


def run_of(content: dict[str, Any], folder: Path) -> Run:
    path = folder / "report.json"
    path.write_text(json.dumps(content))
    return phantora_async.load(folder)


def test_figures(tmp_path: Path) -> None:
    run = run_of(report(), tmp_path)
    assert run.step_time == pytest.approx(1.6e-6)
    assert run.interval is not None
    assert run.interval[0] < run.step_time < run.interval[1]
    assert (run.world_size, run.gpu, run.cluster, run.exit_code, run.failure) == (2, "h200", "dgx-h200", 0, None)
    assert run.path == tmp_path / "report.json"
    assert run.report["simulated"]["world_size"] == 2
    assert run.tokens_per_second is None
    assert repr(run) == f"<Run of 2 x h200 (dgx-h200): 1.6 µs a step, 0.00 GiB allocated; {run.path}>"
    assert "a step takes 1.6 µs (median of steps 4 to 6" in str(run)


def test_steps_are_numbered_as_the_script_counts_them(tmp_path: Path) -> None:
    steps = run_of(report(), tmp_path).steps
    assert [(step.number, step.counted) for step in steps] == [(2, False), (3, False), (4, True), (5, True), (6, True)]
    assert {step.time for step in steps} == {1.6e-6}


def test_a_whole_run_is_step_1(tmp_path: Path) -> None:
    (step,) = run_of(document(*scripts(1)), tmp_path).steps
    assert step.number == 1


def test_of_a_long_run_the_last_steps_are_listed(tmp_path: Path) -> None:
    content = report()
    content["simulated"]["step"] |= {"each_ns": [5, 6], "first_listed": 1500}
    assert [(step.number, step.time) for step in run_of(content, tmp_path).steps] == [(1500, 5e-9), (1501, 6e-9)]


def test_ranks_have_shares_that_fill_their_time(tmp_path: Path) -> None:
    (first, second) = run_of(report(), tmp_path).ranks
    assert (first.rank, second.rank, first.window) == (0, 1, "steps")
    assert first.compute + first.transfer + first.peers + first.host_bound + first.idle == pytest.approx(1.0)
    assert first.compute == pytest.approx(0.625)
    assert first.window_time == pytest.approx(4.8e-6)


def test_kernels(tmp_path: Path) -> None:
    content = report()
    content["simulated"]["kernels"]["window"] = "steps"
    content["simulated"]["kernels"]["signatures"] = [
        {
            "title": "gemm",
            "signature": "gemm;x",
            "launches": 6,
            "total_ns": 6000,
            "mean_ns": 1000,
            "share": 0.8,
            "source": "measured",
            "model": "gemm bf16",
            "bound": "compute",
            "flops": 1e9,
        },
        {"title": "copy", "launches": 6, "mean_ns": 250, "source": "roofline"},
    ]
    content["simulated"]["kernels"]["ranks"] = []
    new, old = run_of(content, tmp_path).kernels
    # Two GPUs have three steps each that count.
    assert (new.time, new.launches, new.mean_time, new.family, new.share) == (1e-6, 1, 1e-6, "gemm bf16", 0.8)
    assert (old.time, old.launches, old.signature, old.family, old.bound) == (0.25e-6, 1, "copy", "copies", "")


def test_a_failed_run_says_so(tmp_path: Path) -> None:
    content = report() | {"exit_code": 75, "failure": {"text": "deadlock <b>"}}
    run = run_of(content, tmp_path)
    assert (run.exit_code, run.failure) == (75, "deadlock <b>")
    assert "failed with exit code 75" in repr(run)
    assert "deadlock &lt;b&gt;" in run._repr_html_()


def test_a_notebook_shows_text_of_scripts_as_text(tmp_path: Path) -> None:
    content = report()
    content["simulated"]["warnings"] = [{"text": "<script>alert(1)</script>", "ranks": [0], "count": 1}]
    shown = run_of(content, tmp_path)._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown


def test_logs_and_rates(tmp_path: Path) -> None:
    content = report()
    content["simulated"]["logged"] = [{"rank": 0, "rate": "tokens/s", "value": 12.0, "text": "12 tokens/s"}]
    (tmp_path / "rank1.log").write_bytes(b"hello \xff\n")
    run = run_of(content, tmp_path)
    assert run.tokens_per_second == 12.0
    assert run.log(1) == "hello \ufffd\n"
    with pytest.raises(UsageError, match=r"rank0\.log: No such file"):
        run.log()
    with pytest.raises(UsageError, match="ranks 0 to 1"):
        run.log(2)


def test_what_cannot_be_loaded_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"report\.json: cannot be read: No such file") as caught:
        phantora_async.load(tmp_path)
    assert caught.value.exit_code == errors.ExitCode.USAGE
    (tmp_path / "old.json").write_text('{"schema": 0}')
    with pytest.raises(UsageError, match="written by another version"):
        phantora_async.load(tmp_path / "old.json")
    damaged = report()
    damaged["simulated"]["step"]["each_ns"] = ["soon"]
    with pytest.raises(UsageError, match=r"step\.each_ns\[0\]: expected a whole number"):
        run_of(damaged, tmp_path)


@pytest.mark.parametrize(("table", "rows"), [("steps", 5), ("ranks", 2), ("kernels", 0)])
def test_tables(table: Any, rows: int, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    run = run_of(report(), tmp_path)
    found = run.to_pandas(table)
    assert len(found) == rows
    assert {"steps": "time", "ranks": "compute", "kernels": "title"}[table] in found.columns
    with pytest.raises(UsageError, match="expected one of figures, steps, ranks, families, kernels"):
        run.to_pandas("all")  # type: ignore[arg-type]


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(report(), tmp_path)
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(EnvironmentUnusable, match="pandas, which is not installed"):
        run.to_pandas()
    with pytest.raises(EnvironmentUnusable, match="matplotlib, which is not installed"):
        run.plot_timeline()


@pytest.fixture
def drawing() -> Any:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def test_a_picture_without_a_trace_shows_the_mean_step(drawing: Any, tmp_path: Path) -> None:
    run = run_of(report(3), tmp_path)
    figure = run.plot_timeline(tmp_path / "t.png", ranks=[2, 0])
    assert (tmp_path / "t.png").stat().st_size > 1000
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["2", "0"]
    assert sum(bar.get_width() for bar in axes.patches) == pytest.approx(2 * 1.6e-3)
    with pytest.raises(UsageError, match="rank 7: the last rank is 2"):
        run.plot_timeline(ranks=[7])
    with pytest.raises(UsageError, match="without a trace no single step is known"):
        run.plot_timeline(step=3)
    with pytest.raises(NotWritten, match="cannot write"):
        run.plot_timeline(tmp_path / "no" / "t.png")


def test_a_picture_says_which_ranks_it_leaves_out(drawing: Any, tmp_path: Path) -> None:
    (axes,) = run_of(report(40), tmp_path).plot_timeline().axes
    assert len(axes.get_yticklabels()) == 32
    assert axes.get_title().endswith("; 8 more ranks: ranks=[...]")


def test_copies_have_the_page_s_colour() -> None:
    bright = (Path(pages.__file__).parent / "page.css").read_text().partition("@media")[0]
    assert f"--good: {LANES['copies']};" in bright


def event(cat: str, name: str, ts: float, dur: float) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur}


def test_a_picture_of_a_trace_shows_the_work_of_one_step(drawing: Any, tmp_path: Path) -> None:
    events = [
        {"ph": "M", "name": "process_name"},
        event("user_annotation", "ProfilerStep#1", 0, 1000),
        event("user_annotation", "ProfilerStep#2", 1000, 500),
        event("kernel", "gemm", 100, 50),
        event("kernel", "gemm", 1100, 60),
        event("kernel", "ncclDevKernel_AllReduce", 1200, 70),
        event("gpu_memcpy", "Memcpy", 1300, 20),
        event("cpu_op", "aten::mm", 1000, 400),
    ]
    (tmp_path / "t.rank1.json").write_text(json.dumps({"traceEvents": events}))
    run = run_of(report() | {"run": {"trace": str(tmp_path / "t.json")}}, tmp_path)
    (axes,) = run.plot_timeline().axes
    widths = {lane.get_label(): [path.get_extents().width for path in lane.get_paths()] for lane in axes.collections}
    assert widths == {
        "compute": [pytest.approx(0.06)],
        "communication": [pytest.approx(0.07)],
        "copies": [pytest.approx(0.02)],
    }
    assert axes.get_xlim() == (0, pytest.approx(0.5))
    (axes,) = run.plot_timeline(step=1).axes
    assert axes.get_title() == "GPU work of step 1"
    with pytest.raises(UsageError, match=r"step 9: .* has steps 1, 2"):
        run.plot_timeline(step=9)
    with pytest.raises(UsageError, match="rank 0: it was not traced"):
        run.plot_timeline(ranks=[0])
    for text in (
        '{"traceEvents": [{"ph"',
        '{"traceEvents": [{"ph": "X"}]}',
        '{"traceEvents": [{"ph": "X", "name": "a", "ts": 0, "dur": 1e999}]}',
        '{"traceEvents": [7]}',
        "[" * 100_000,
    ):
        (tmp_path / "t.rank1.json").write_text(text)
        with pytest.raises(UsageError, match=r"t\.rank1\.json:.* not"):
            run.plot_timeline()
    os.truncate(tmp_path / "t.rank1.json", 10 << 30)
    with pytest.raises(UsageError, match=r"t\.rank1\.json: cannot be read: holds more than 512 MiB"):
        run.plot_timeline()


@pytest.mark.parametrize(
    "error",
    [
        errors.UsageError("m", "h"),
        errors.RankDied(3, "m", 7),
        errors.Interrupted("m", shows_ranks=True),
        errors.LauncherFailed("m", "d", 9),
        errors.ProtocolError(1, "m"),
        errors.Mismatch("m", (errors.Side("all_reduce", (0, 1), (5, 5)),), "d"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_come_whole_from_another_process(error: PhantoraError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert again.exit_code == error.exit_code


def test_whoever_has_started_a_run_is_killed() -> None:
    """Nobody takes the result: the run's process ends without a word."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", BOOTSTRAP, str(Path(__file__).parents[3]), str(write), str(os.getpid())]
    options = pickle.dumps(RunOptions("no such script.py"))
    done = subprocess.run(command, input=options, pass_fds=[write], capture_output=True, check=False)
    os.close(write)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
