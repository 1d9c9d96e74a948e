"""Rows of GPU work: figures of a step and GPU, by family and by kernel, the same in every view."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from phantora_async import cli
from phantora_async.pages import view
from phantora_async.report import terminal_report
from phantora_async.report.gpu_work import beside_kernels, family_rows, kernel_rows, work_window
from phantora_async.wording import seconds

from ..virtual_time.scripted import scripts
from .test_report import document, train


def report() -> dict[str, Any]:
    """Two ranks of which three steps count; each does the same."""
    made = document(*[train(script, 6, marked=True) for script in scripts(2)])
    one = {"source": "measured", "bound": "compute"}
    made["simulated"]["kernels"] |= {
        "window": "steps",
        "gpu_ns": 60_000,
        "signatures": [
            one
            | {"title": "gemm a", "signature": "gemm;a", "model": "gemm", "launches": 12, "mean_ns": 3000}
            | {"site": "train.py:7 in forward"},
            one | {"title": "gemm b", "signature": "gemm;b", "model": "gemm", "launches": 6, "mean_ns": 2000},
            one | {"title": "gemm b", "signature": "gemm;c", "model": "gemm", "launches": 6, "mean_ns": 1000},
            one | {"title": "copy 1 bytes", "signature": "copy;d2d;1", "launches": 6, "mean_ns": 1000},
        ],
        "ranks": [{"ranks": [0, 1], "launches": [6, 3, 3, 3]}],
    }
    for rank in made["simulated"]["ranks"]:
        rank |= {"window": "steps", "compute_ns": 33_000}
    return made


def test_rows_name_the_line_that_launches_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    made = report()
    assert [row.site for row in kernel_rows(made["simulated"])] == ["train.py:7 in forward", "", ""]
    assert [row["site"] for row in view(made)["work"]["kernels"]] == ["train.py:7 in forward", "", ""]
    assert "gemm a at train.py:7 in forward" in terminal_report(made, verbose=True)
    assert "train.py:7" not in terminal_report(made)


def test_figures_are_those_of_a_step_and_gpu() -> None:
    simulated = report()["simulated"]
    rows = kernel_rows(simulated)
    assert [(row.title, row.ns, row.launches, row.mean_ns) for row in rows] == [
        ("gemm a", 6000, 2, 3000),
        ("gemm b", 3000, 2, 1500),
        ("copy 1 bytes", 1000, 1, 1000),
    ]
    assert [one["signature"] for one in rows[1].signatures] == ["gemm;b", "gemm;c"]
    assert [(row.title, row.ns, row.launches) for row in family_rows(simulated)] == [
        ("gemm", 9000, 4),
        ("copies", 1000, 1),
    ]
    assert [(row.ns, row.launches) for row in kernel_rows(simulated, rank=1)] == [(6000, 2), (3000, 2), (1000, 1)]
    assert work_window(simulated) == "a step and GPU, mean of steps 4 to 6"
    assert work_window(simulated, rank=1) == "a step of rank 1, mean of steps 4 to 6"


def test_time_that_no_kernel_takes_alone_has_a_name() -> None:
    """A GPU is busy for 11 us of a step, and its five kernels run for 10 of them; 100 ns pass between two launches."""
    made = report()
    simulated = made["simulated"]
    simulated["kernels"]["launch_gap_ns"] = 100
    gaps, slower = ("gaps between launches", 500), ("slower beside NCCL's kernels", 500)
    assert beside_kernels(simulated) == beside_kernels(simulated, rank=0) == [gaps, slower]
    for name, _ in (gaps, slower):
        (line,) = (line for line in terminal_report(made).splitlines() if name in line)
        assert line.split() == ["0.5", "µs", "and", *name.split()]
    del simulated["kernels"]["launch_gap_ns"]
    assert beside_kernels(simulated) == [("gaps between launches, and slower beside NCCL's kernels", 1000)]
    for rank in simulated["ranks"]:
        rank["compute_ns"] = 30_000
    assert beside_kernels(simulated) == []


def test_without_steps_they_are_of_the_whole_run() -> None:
    simulated = report()["simulated"]
    simulated["kernels"]["window"] = "run"
    assert [row.ns for row in kernel_rows(simulated)] == [18_000, 9000, 3000]
    assert beside_kernels(simulated) == []
    assert work_window(simulated) == "a GPU in the whole run"


def test_every_view_has_the_same_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = report()
    (tmp_path / "report.json").write_text(json.dumps(made))

    def printed(*options: str) -> str:
        assert cli.run(["report", str(tmp_path), *options]) == 0
        return capsys.readouterr().out

    page = view(made)["work"]
    for name, rows in (("kernels", kernel_rows(made["simulated"])), ("families", family_rows(made["simulated"]))):
        expected = [(row.title, f"{row.share:.1%}", seconds(round(row.ns)), f"{row.launches:.0f}") for row in rows]
        lines = [*csv.DictReader(io.StringIO(printed("--csv", "--table", name)))]
        titles = "title" if name == "kernels" else "family"
        figures = [
            (
                one[titles],
                f"{float(one['share']):.1%}",
                seconds(round(float(one["time"]) * 1e9)),
                f"{float(one['launches']):.0f}",
            )
            for one in lines
        ]
        assert figures == expected
        assert [
            (one["title"], f"{one['share']:.1%}", seconds(round(one["ns"])), f"{one['launches']:.0f}")
            for one in page[name]
        ] == expected
        text, markdown = printed(), printed("--md")
        for title, share, time, launches in expected:
            assert any(
                line.split()[:4] == [share, *time.split(), launches] and title in line for line in text.splitlines()
            )
            assert any(
                line.startswith(f"| {share} | {time} | {launches} |") and title in line
                for line in markdown.splitlines()
            )
