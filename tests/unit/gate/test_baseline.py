"""What a baseline keeps beside the figures: a changed setup is told, and a figure that became worse has its causes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from phantora_async import cli
from phantora_async.api import running
from phantora_async.api.results import Run
from phantora_async.comparison import Side, compare
from phantora_async.errors import RankDied
from phantora_async.gate import baseline
from phantora_async.gate.digest import compared, digest

from ..comparison.test_comparison import RUN, signature
from ..report.test_report import document, train
from ..virtual_time.scripted import scripts

FILE = """\
[job.a]
script = "train.py"
world_size = 2
max_memory = "10MiB"
fail_if = "step > +0.2%, allocated > +0.2%"
"""


@pytest.fixture(scope="module")
def played() -> dict[str, Any]:
    made = document(*(train(script, 6, marked=True) for script in scripts(2)))
    made["run"] = copy.deepcopy(RUN)
    simulated = made["simulated"]
    simulated["kernels"]["signatures"] = [
        signature("gemm;mm;1024;aten::mm;[[8]]", 60, 100_000, "gemm bf16"),
        signature("kernel;add;16;aten::add;[[8]]", 12, 10_000, "element-wise"),
    ]
    simulated["step"] |= {"median_ns": 1_000_000, "interval": {"low_ns": 900_000, "high_ns": 1_500_000}}
    for rank in simulated["ranks"]:
        rank["memory"] |= {"reserved_peak_nbytes": 4 << 20, "allocated_peak_nbytes": 3 << 20}
    simulated["memory"] |= {
        "verdict": {"fits": True, "rank": 0, "needed_nbytes": 5 << 20, "left_nbytes": 1 << 30},
        "fullest": {
            "rank": 0,
            "parts": {"activations": 3 << 20, "outside PyTorch": 1 << 20},
            "holders": [{"part": "activations", "op": "aten::mm", "site": "train.py:7 in step", "nbytes": 3 << 20}],
        },
    }
    return made


@pytest.fixture
def report(played: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The report that each run of the job gives; a test changes it between two checks."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("pass\n")
    Path("budgets.toml").write_text(FILE)
    content = copy.deepcopy(played)
    monkeypatch.setattr(running, "run", lambda *_, **__: Run(copy.deepcopy(content), Path("report.json")))
    assert cli.run(["check", "budgets.toml", "--update"]) == 0
    return content


def line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.splitlines()[0]


def test_what_is_kept_compares_as_whole_reports_do(report: dict[str, Any]) -> None:
    other = copy.deepcopy(report)
    other["simulated"]["kernels"]["signatures"][0]["total_ns"] += 600_000
    other["simulated"]["step"]["median_ns"] = 1_100_000
    before, now = digest(report), digest(other)
    assert before is not None
    assert now is not None
    whole, kept = compare([Side("A", report), Side("B", other)]), compared(before, now)
    assert kept.causes() == whole.causes()
    assert [one.ms for one in kept.kernels] == [pytest.approx(one.ms) for one in whole.kernels]
    assert [one.ms for one in kept.parts] == [pytest.approx(one.ms) for one in whole.parts]
    shown = {one.name: one.values for one in kept.figures}
    assert shown == {one.name: pytest.approx(one.values) for one in whole.figures}


def test_an_unchanged_job_is_ok(report: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    for _ in range(2):
        assert cli.run(["check", "budgets.toml", "--json"]) == 0
        (job,) = json.loads(capsys.readouterr().out)["jobs"]
        assert (job["changed_setup"], job["notes"], job["causes"]) == ([], [], [])


def test_a_worse_figure_has_its_causes(report: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Two GPUs do six steps each: 6 launches of 100 µs are 50 µs of a step and GPU."""
    simulated = report["simulated"]
    simulated["step"]["median_ns"] = 1_100_000
    simulated["kernels"]["signatures"].append(
        signature("kernel;clone;16;aten::clone;[[8]]", 6, 100_000, "element-wise")
    )
    simulated["calls"]["waits"] = [{"on": "stream", "calls": 12, "site": "train.py:9 in step", "code": "loss.item()"}]
    capsys.readouterr()
    assert cli.run(["check", "budgets.toml", "--junit", "j.xml", "--markdown", "t.md"]) == 1
    told = line(capsys)
    for text in (
        "step time 1.10 ms, baseline 1.00 ms (+10.0 %)",
        "GPU work: element-wise +0.050 ms",
        "kernel (aten::clone) [new] +0.050 ms",
        "the host waits for the GPU: at train.py:9 in step `loss.item()` (0 -> 1 a step)",
    ):
        assert text in told
    assert "held by" not in told, "memory is not worse"
    assert "aten::clone" in Path("j.xml").read_text()
    assert "aten::clone" in Path("t.md").read_text()


def test_more_memory_is_told_with_part_and_line(report: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    for rank in report["simulated"]["ranks"]:
        rank["memory"]["allocated_peak_nbytes"] += 1 << 20
    fullest = report["simulated"]["memory"]["fullest"]
    fullest["parts"]["activations"] += 1 << 20
    fullest["holders"].append({"part": "activations", "op": "aten::gelu", "site": "train.py:8", "nbytes": 1 << 20})
    capsys.readouterr()
    assert cli.run(["check", "budgets.toml"]) == 1
    assert line(capsys).endswith(
        "(+33.3 %); memory: activations +1.0 MiB; held by aten::gelu at train.py:8 (activations) +1.0 MiB"
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"simulated": {"cluster": "other"}}, "cluster "),
        ({"run": {"arguments": ["--lr", "1e-3"]}}, "argument --lr 3e-4 -> 1e-3"),
        ({"run": {"versions": RUN["versions"] | {"torch": "2.15.0"}}}, "version of torch 2.11.0 -> 2.15.0"),
        ({"run": {"environment": {"NCCL_ALGO": "Tree"}}}, "environment: NCCL_ALGO Ring -> Tree"),
    ],
)
def test_another_setup_is_never_ok(
    report: dict[str, Any], capsys: pytest.CaptureFixture[str], change: dict[str, Any], told: str
) -> None:
    """A faster step of another machine would hide a change for the worse."""
    for part, fields in change.items():
        report[part] |= fields
    report["simulated"]["step"]["median_ns"] = 900_000
    capsys.readouterr()
    code = cli.run(["check", "budgets.toml"])
    text = line(capsys)
    assert code == 1
    assert f"not comparable with its baseline: {told}" in text
    assert "-10.0 %" not in text
    assert cli.run(["check", "budgets.toml", "--update"]) == 0
    assert cli.run(["check", "budgets.toml"]) == 0


def test_another_python_is_told(report: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    report["run"]["versions"]["python"] = "3.12.1"
    capsys.readouterr()
    assert cli.run(["check", "budgets.toml"]) == 0
    assert "baseline of another version of python 3.11.7 -> 3.12.1" in line(capsys)


def test_another_script_is_what_a_check_is_for(report: dict[str, Any]) -> None:
    report["run"] |= {"script": "/elsewhere/train.py", "script_sha256": "b" * 64}
    assert cli.run(["check", "budgets.toml"]) == 0


def test_budgets_say_what_they_leave_out_and_how_sure_they_are(
    report: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("budgets.toml").write_text(FILE.replace("fail_if", 'max_step_time = "1.2ms"\nfail_if'))
    capsys.readouterr()
    assert cli.run(["check", "budgets.toml"]) == 0
    told = line(capsys)
    assert "memory reserved 4.00 MiB of 10.00 MiB (-60.0 %), 5.00 MiB with what is outside PyTorch" in told
    assert "90% interval 900.0 µs to 1.50 ms, so that it is not sure" in told


def test_an_exceeded_budget_is_named_where_the_gpu_is_full(
    report: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report["simulated"]["memory"]["verdict"] = {"fits": False, "rank": 0, "missing_nbytes": 1 << 30}
    report["simulated"]["ranks"][0]["memory"]["reserved_peak_nbytes"] = 20 << 20

    def run(*_: Any, **__: Any) -> Run:
        error = RankDied(0, "rank 0 ended with exit code 1: torch.OutOfMemoryError: CUDA out of memory", 1)
        error.run = Run(report, Path("report.json"))
        raise error

    monkeypatch.setattr(running, "run", run)
    capsys.readouterr()
    assert cli.run(["check", "budgets.toml"]) == 1
    told = line(capsys)
    assert "does not fit: 1.00 GiB missing at least; memory reserved at least 20.00 MiB of 10.00 MiB (+100.0 %)" in told
    assert told.count("memory reserved") == 1
    assert cli.run(["check", "budgets.toml", "--update"]) == 1
    assert "baseline: budgets.baseline.json, without a: no figures" in capsys.readouterr().out


def test_a_baseline_is_small_and_the_same_each_time(report: dict[str, Any]) -> None:
    path = Path("budgets.baseline.json")
    before = path.read_bytes()
    assert cli.run(["check", "budgets.toml", "--update"]) == 0
    assert path.read_bytes() == before
    kept = baseline.read(path)["a"].digest
    assert kept is not None
    assert len(kept["simulated"]["ranks"]) == 1, "one stands for all"


def test_markup_of_a_script_stays_text(report: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> Run:
        raise RankDied(0, "rank 0 ended with exit code 1: ValueError: <bad> [x](http://y) | *z*", 1)

    monkeypatch.setattr(running, "run", run)
    assert cli.run(["check", "budgets.toml", "--markdown", "t.md"]) == 1
    row = Path("t.md").read_text().splitlines()[2]
    assert "<" not in row.replace("&lt;", "")
    assert "](" not in row.replace("\\](", "")
    assert row.count("|") - row.count("\\|") == 7


def test_a_new_job_fails_and_the_others_are_checked(report: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    Path("budgets.toml").write_text(FILE + FILE.replace("[job.a]", "[job.b]"))
    capsys.readouterr()
    assert cli.run(["check", "budgets.toml"]) == 1
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first.startswith("ok")
    assert second.startswith("FAIL  b")
    assert "step time 1.00 ms, with nothing to compare it with" in second
    assert second.endswith("the baseline does not have this job (--update stores it)")
    assert cli.run(["check", "budgets.toml", "--job", "b"]) == 2, "nothing at all is stored of what is asked for"
    capsys.readouterr()
    assert cli.run(["check", "budgets.toml", "--json"]) == 1
    compared = [row for row in json.loads(capsys.readouterr().out)["jobs"][1]["rows"] if "baseline" in row]
    assert [(row["baseline"], row["change"], row["broken"]) for row in compared] == [(None, None, True)] * 2
