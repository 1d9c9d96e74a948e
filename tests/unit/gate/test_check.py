"""`check`: the file of jobs, verdicts, their forms, the baseline, exit codes. The runs themselves are stand-ins."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import phantora_async
from phantora_async import cli
from phantora_async.api import running
from phantora_async.api.results import Run
from phantora_async.errors import ExitCode, NotFoldable, NotWritten, OverBudget, RankDied, UsageError
from phantora_async.gate import baseline, job_file
from phantora_async.gate.baseline import Stored

from .test_budget import ended_early, report

FILE = """\
[defaults]
world_size = 2
cluster = "dgx-h100"

[job.roomy]
script = "train.py"
max_memory = "80GiB"
max_step_time = "450ms"

[job.tight]
script = "train.py"
arguments = ["--big"]
max_memory = "70GiB"
"""


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The working directory has train.py and budgets.toml. What runs were asked for; each gives the same report."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("pass\n")
    (tmp_path / "budgets.toml").write_text(FILE)
    asked: list[dict[str, Any]] = []

    def run(script: str, arguments: list[str], **options: Any) -> Run:
        asked.append({"script": script, "arguments": list(arguments), **options})
        return Run(_report(), Path("report.json"))

    monkeypatch.setattr(running, "run", run)
    return asked


def _report(step_ns: int = 400_000_000) -> dict[str, Any]:
    made = report(step_ns)
    made["simulated"]["memory"] = {"verdict": {"fits": True, "left_nbytes": 4 << 30}}
    return made


def test_a_line_for_each_job_and_an_exit_code(ran: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check", "budgets.toml"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "ok    roomy  fits, 4.00 GiB left; memory reserved 76.00 GiB of 80.00 GiB (-5.0 %); "
        "step time 400.0 ms of 450.0 ms (-11.1 %); 5 steps for a median"
    )
    assert lines[1] == "FAIL  tight  fits, 4.00 GiB left; memory reserved 76.00 GiB of 70.00 GiB (+8.6 %)"
    assert lines[2:] == ["tight: phantora-async report report.json", "2 jobs: 1 within their budgets, 1 not"]
    assert [(one["arguments"], one["steps"], one["cluster"]) for one in ran] == [
        ([], 5, "dgx-h100"),  # a time needs steps that count
        (["--big"], 2, "dgx-h100"),  # memory is at its peak in the second step
    ]
    assert cli.run(["check", "budgets.toml", "--job", "roomy"]) == 0


def test_a_job_ends_when_its_memory_exceeds_the_budget(
    ran: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "budgets.toml").write_text(
        '[job.a]\nscript = "train.py"\nmax_memory = "70GiB"\nmax_step_time = "1ms"\nfail_if = "step > +3%"\n'
    )
    asked: list[dict[str, Any]] = []

    def run(script: str, arguments: list[str], **options: Any) -> Run:
        asked.append(options)
        error = OverBudget("over budget: memory")
        error.run = Run(_report() | {"stopped": ended_early()["stopped"]}, Path("report.json"))
        raise error

    monkeypatch.setattr(running, "run", run)
    baseline.write(tmp_path / "budgets.baseline.json", {"a": Stored({"step": 0.1, "memory": 1.0})})
    assert cli.run(["check", "budgets.toml", "--update", "--junit", "junit.xml"]) == 1
    line = capsys.readouterr().out.splitlines()[0]
    assert line == (
        "FAIL  a  does not fit its budget: memory reserved at least 76.00 GiB of 70.00 GiB (+8.6 %) in step 2, "
        "after which the run ended"
    )
    assert [(one["max_memory"], "max_step_time" in one) for one in asked] == [(f"{70 << 30}B", False)]
    assert baseline.read(tmp_path / "budgets.baseline.json")["a"] == Stored({"step": 0.1, "memory": 1.0}), (
        "not those figures"
    )
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("1", "0")


def test_files_for_programs(ran: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--json", "--junit", "junit.xml", "--markdown", "table.md"]
    assert cli.run(["check", "budgets.toml", *arguments]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [(one["job"], one["good"]) for one in told["jobs"]] == [("roomy", True), ("tight", False)]
    assert told["jobs"][1]["rows"] == [
        {"figure": "memory", "value": 76 * 2**30, "budget": 70 * 2**30, "change": 76 / 70 - 1, "broken": True}
    ]
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    assert [case.find("failure") is not None for case in suite] == [False, True]
    assert "| tight | **memory reserved 76.00 GiB of 70.00 GiB (+8.6 %)** |" in (tmp_path / "table.md").read_text()


def test_a_job_that_fails_is_an_error_with_its_reason(
    ran: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: Any, **__: Any) -> Run:
        raise RankDied(0, "rank 0 ended with exit code 3: ValueError: no data", 3)

    monkeypatch.setattr(running, "run", run)
    assert cli.run(["check", "budgets.toml", "--junit", "junit.xml"]) == 1
    assert "FAIL  roomy  rank 0 ended with exit code 3: ValueError: no data" in capsys.readouterr().out
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("0", "2")
    assert [[one.tag for one in case] for case in suite] == [["error", "system-out"]] * 2


def test_a_job_that_does_not_fit_is_counted_as_the_failure_that_its_case_shows(
    ran: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: Any, **__: Any) -> Run:
        content = _report()
        content["simulated"]["memory"] = {"verdict": {"fits": False, "rank": 0, "missing_nbytes": 1 << 30}}
        error = RankDied(0, "rank 0 ended with exit code 1: torch.OutOfMemoryError: CUDA out of memory", 1)
        error.run = Run(content, Path("report.json"))
        raise error

    monkeypatch.setattr(running, "run", run)
    assert cli.run(["check", "budgets.toml", "--junit", "junit.xml"]) == 1
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("2", "0")
    assert [[one.tag for one in case] for case in suite] == [["failure", "system-out"]] * 2


def test_changes_are_judged_against_a_baseline_that_update_stores(
    ran: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "budgets.toml").write_text('[job.a]\nscript = "train.py"\nfail_if = "step > +3%"\n')
    assert cli.run(["check", "budgets.toml"]) == ExitCode.USAGE
    assert "--update stores" in capsys.readouterr().err
    assert cli.run(["check", "budgets.toml", "--update"]) == 0
    assert baseline.read(tmp_path / "budgets.baseline.json")["a"].figures["step"] == 0.4
    assert cli.run(["check", "budgets.toml"]) == 0
    slower = lambda *_, **__: Run(_report(step_ns=420_000_000), Path("report.json"))  # noqa: E731
    monkeypatch.setattr(running, "run", slower)
    assert cli.run(["check", "budgets.toml"]) == 1
    assert "step time 420.0 ms, baseline 400.0 ms (+5.0 %)" in capsys.readouterr().out


def test_figures_of_the_warm_up_are_no_baseline(
    ran: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: Any, **__: Any) -> Run:
        made = _report()
        for rank in made["simulated"]["ranks"]:
            rank["steps"] = 2
        return Run(made, Path("report.json"))

    monkeypatch.setattr(running, "run", run)
    cli.run(["check", "budgets.toml", "--update"])
    assert set(baseline.read(tmp_path / "budgets.baseline.json")["tight"].figures) == {"memory", "allocated"}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "job: missing"),
        ("[job]\n", "no \\[job.NAME\\] tables"),
        ("[job.a]\n", "job.a.script: expected script"),
        ('[job.a]\nscript = "train.py"\nmodule = "m"\n', "one of them"),
        ('[job.a]\nscript = "train.py"\nmax_memori = "1GiB"\n', ":3: job.a.max_memori: unknown key"),
        ('[job.a]\nscript = "train.py"\nmax_memory = "1"\n', ":3: job.a.max_memory: expected a value such as 76GiB"),
        ('[job.a]\nscript = "train.py"\nmax_memory = true\n', ":3: job.a.max_memory: expected text"),
        ('[job.a]\nscript = "train.py"\nsteps = "three"\n', ":3: job.a.steps: expected a whole number"),
        ('[job.a]\nscript = "train.py"\nfail_if = "step > 3"\n', ":3: job.a.fail_if: rule 'step > 3'"),
        ('[job.a]\nscript = "train.py"\nrun_dir = "x"\n', ":3: job.a.run_dir: not for check"),
        ('[defaults]\nclusters = "x"\n[job.a]\nscript = "train.py"\n', ":2: defaults.clusters: unknown key"),
        ('[job."a/b"]\nscript = "train.py"\n', "a job's name"),
        ('[jobs.a]\nscript = "train.py"\n', "job: missing"),
    ],
)
def test_wrong_files_are_told_before_anything_starts(
    ran: list[dict[str, Any]], tmp_path: Path, text: str, fault: str
) -> None:
    (tmp_path / "budgets.toml").write_text(text)
    with pytest.raises(UsageError, match=fault):
        job_file.read(tmp_path / "budgets.toml")
    assert cli.run(["check", "budgets.toml"]) == ExitCode.USAGE
    assert ran == []


REPLICAS = "model = DDP(model)\n"


@pytest.mark.parametrize(
    ("script", "more", "fold"),
    [
        (REPLICAS, "world_size = 8", "auto"),
        (REPLICAS, 'world_size = 8\nfold = "none"', None),
        (REPLICAS, 'world_size = 8\nfold = "dp=8"', "dp=8"),
        (REPLICAS, "world_size = 2", None),  # the first and the last have processes anyway
        (REPLICAS, 'world_size = 8\nfault = ["gpu rank=3 slower=2"]', None),
        (REPLICAS + "if rank % 2: x()", "world_size = 8", None),
        ("pass\n", "world_size = 8", None),  # nobody knows how it divides its work
        ("pass\n", "world_size = 1024", None),
    ],
)
def test_equal_ranks_are_folded(
    ran: list[dict[str, Any]], tmp_path: Path, script: str, more: str, fold: str | None
) -> None:
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "budgets.toml").write_text(f'[job.a]\nscript = "train.py"\nmax_memory = "80GiB"\n{more}\n')
    (job,) = job_file.read(tmp_path / "budgets.toml")
    assert job.options.fold == fold
    assert job.folded == (fold == "auto")


def test_what_cannot_be_folded_runs_with_all_processes(
    ran: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(REPLICAS)
    (tmp_path / "budgets.toml").write_text('[job.a]\nscript = "train.py"\nworld_size = 8\nmax_memory = "80GiB"\n')
    asked: list[str | None] = []

    def run(script: str, arguments: list[str], **options: Any) -> Run:
        asked.append(options.get("fold"))
        if asked == ["auto"]:
            raise NotFoldable("rank 3 is a witness, and does something else")
        return Run(_report(), Path("report.json"))

    monkeypatch.setattr(running, "run", run)
    assert cli.run(["check", "budgets.toml"]) == 0
    assert asked == ["auto", None]
    assert "a: again with a process for each rank" in capsys.readouterr().err


@pytest.mark.parametrize("line", ['script = "missing.py"', 'script = "train.py"\ncluster = "dgx-h1000"'])
def test_no_job_starts_if_one_cannot(
    ran: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    (tmp_path / "budgets.toml").write_text(f'[job.a]\nscript = "train.py"\n[job.b]\n{line}\n')
    assert cli.run(["check", "budgets.toml"]) == ExitCode.USAGE
    assert "budgets.toml: job b: " in capsys.readouterr().err
    assert ran == []
    assert sorted(os.listdir(tmp_path)) == ["budgets.toml", "train.py"], "nothing is left behind"


def test_a_full_disk_is_no_job_s_fault(ran: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Run:
        raise NotWritten("cannot write the report report.json: No space left on device")

    monkeypatch.setattr(running, "run", full)
    assert cli.run(["check", "budgets.toml"]) == ExitCode.NOT_WRITTEN
    assert cli.run(["check", "budgets.toml", "--run-dir", "train.py/runs"]) == ExitCode.NOT_WRITTEN


def test_from_python_also_within_an_event_loop(ran: list[dict[str, Any]], tmp_path: Path) -> None:
    lines: list[str] = []

    async def in_a_notebook() -> phantora_async.Checked:
        return phantora_async.check("budgets.toml", jobs=["roomy"], told=lines.append)

    checked = asyncio.run(in_a_notebook())
    assert checked.good
    assert [one["job"] for one in checked.document()["jobs"]] == ["roomy"]
    assert str(checked) == f"{lines[0]}\n1 job: 1 within its budgets, 0 not"
    checked.write_junit("x.xml")
    assert ElementTree.parse("x.xml").getroot().get("tests") == "1"
    with pytest.raises(UsageError, match=r"--job no: budgets.toml has no such job"):
        phantora_async.check("budgets.toml", jobs=["no"])
    with pytest.raises(UsageError, match="jobs: expected a list of names, found 'roomy'"):
        phantora_async.check("budgets.toml", jobs="roomy")
    assert len(ran) == 1


@pytest.mark.parametrize(
    "more", [["--junit", "no/x.xml"], ["--markdown", "."], ["--baseline", "no/b.json", "--update"]]
)
def test_what_cannot_be_written_is_told_before_anything_starts(
    ran: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    assert cli.run(["check", "budgets.toml", *more]) == ExitCode.NOT_WRITTEN
    assert f"cannot write {more[1]}: " in capsys.readouterr().err
    assert ran == []
    assert sorted(os.listdir(tmp_path)) == ["budgets.toml", "train.py"], "nothing is left behind"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"format": 2, "jobs": {"a": {"figures": {"step": NaN}, "digest": null}}}',
        '{"format": 2, "jobs": {"a": {"figures": {"step": 1.0}, "digest": {"run": 3, "simulated": []}}}}',
        '{"format": 2, "jobs": {"a": {"step": 1.0}}}',
        '{"format": 2}',
    ],
)
def test_a_damaged_baseline_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(content)
    with pytest.raises(UsageError, match="is no baseline"):
        baseline.read(path)


def test_a_baseline_of_an_earlier_version_is_written_anew(
    ran: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "budgets.baseline.json"
    path.write_text('{"format": 1, "jobs": {"roomy": {"step": 0.4}}}')
    assert cli.run(["check", "budgets.toml"]) == ExitCode.USAGE
    assert "--update writes it anew" in capsys.readouterr().err
    cli.run(["check", "budgets.toml", "--update"])
    assert baseline.read(path)["roomy"].figures["step"] == 0.4


def test_paths_are_those_of_the_file(
    ran: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (job, _) = job_file.read(Path("../budgets.toml"))
    assert Path(job.options.script).samefile(tmp_path / "train.py")


def test_the_example_can_start() -> None:
    jobs = job_file.read(Path(__file__).parents[3] / "examples" / "budgets.toml")
    assert [job.options.steps for job in jobs] == [2, 5]
    job_file.check_options(jobs, Path("budgets.toml"))
