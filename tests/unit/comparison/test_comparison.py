"""Reports side by side: what was set up differently, figures, the parts of a step, kernels."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import phantora_async
from phantora_async import cli
from phantora_async.comparison import Comparison, Side, compare
from phantora_async.errors import ExitCode, UsageError

from ..report.test_report import document, train
from ..virtual_time.scripted import scripts

RUN = {
    "kind": "script",
    "script": "train.py",
    "script_sha256": "a" * 64,
    "arguments": ["--lr", "3e-4", "--batch=8", "--compile", "--offset", "-1", "data"],
    "options": {"world_size": 2, "run_dir": "one"},
    "versions": {"phantora-async": "0.1.0", "torch": "2.11.0", "python": "3.11.7"},
    "environment": {"NCCL_ALGO": "Ring"},
    "descriptions": {
        "gpu": {
            "memory": {"total_nbytes": 80 << 30, "bandwidth_gb_per_s": 3350.0},
            "sm_clock_khz": 1980000,
            "peaks": [["bf16", 989e12]],
        },
        "cluster": {"network": {"fabric": {"oversubscription": 1.0}}},
        "host": {"cost_ns": {"launch": 7110.0}},
    },
    "trace": None,
}


def signature(text: str, launches: int, mean_ns: int, model: str) -> dict[str, Any]:
    title = f"{text.split(';')[0]} m={text.split(';')[2]} ({text.split(';')[-2]})"
    return {
        "title": title,
        "signature": text,
        "launches": launches,
        "total_ns": launches * mean_ns,
        "mean_ns": mean_ns,
        "source": "measured",
        "model": model,
        "share": 0.1,
        "flops": 1.0,
    }


@pytest.fixture(scope="module")
def played() -> dict[str, Any]:
    return document(*(train(script, 6, marked=True) for script in scripts(2)))


@pytest.fixture
def report(played: dict[str, Any]) -> dict[str, Any]:
    """Returns the report of two ranks and three steps that count."""
    content = copy.deepcopy(played)
    content["run"] = copy.deepcopy(RUN)
    kernels = content["simulated"]["kernels"]
    kernels["signatures"] = [
        signature("gemm;mm;1024;aten::mm;[[8]]", 60, 100_000, "gemm bf16"),
        signature("kernel;add;16;aten::add;[[8]]", 12, 10_000, "element-wise"),
        signature("kernel;old;16;aten::old;[[8]]", 6, 10_000, "element-wise"),
    ]
    kernels["window"], kernels["ranks"] = "steps", []
    return content


def changed(report: dict[str, Any], **run: Any) -> dict[str, Any]:
    other = copy.deepcopy(report)
    other["run"] |= copy.deepcopy(run)
    return other


def compared(*reports: dict[str, Any]) -> Comparison:
    return compare([Side(f"run{number}/report.json", one) for number, one in enumerate(reports)])


def differing(*reports: dict[str, Any]) -> dict[str, tuple[str | None, ...]]:
    return {one.what: one.values for one in compared(*reports).differences}


def test_equal_runs_differ_in_nothing(report: dict[str, Any]) -> None:
    found = compared(report, report, report)
    assert (found.differences, found.remarks) == ((), ())
    assert {one.change(run) for one in found.figures for run in (1, 2)} <= {0.0, None}
    assert {one.change_ms(1) for one in (*found.parts, *found.families)} == {0.0}
    assert {(one.most_changed_ms, one.status) for one in found.kernels} == {(0.0, "both")}
    text = str(found)
    assert "nothing differs in what was set up" in text
    assert "changed most" not in text
    assert "%" not in text.replace("MFU, %", "").replace("90% range", "")


def test_arguments_are_compared_by_name(report: dict[str, Any]) -> None:
    other = changed(report, arguments=["data", "--lr=1e-3", "--offset", "-2", "--batch", "8", "--new", "x", "y"])
    assert differing(report, other) == {
        "argument --lr": ("3e-4", "1e-3"),
        "argument --compile": ("given", None),
        "argument --offset": ("-1", "-2"),
        "argument --new": (None, "x"),
        "arguments without a name": ("data", "data y"),
    }


def test_options_that_change_no_figure_are_not_compared(report: dict[str, Any]) -> None:
    options = {"world_size": 2, "run_dir": "other", "trace": "t.json", "isolation": "none", "value": ["42=1", "43=2"]}
    assert differing(report, changed(report, options=options)) == {
        "--isolation": ("auto", "none"),
        "--value": ("", "42=1, 43=2"),
    }


def test_versions_environment_and_script(report: dict[str, Any]) -> None:
    other = changed(
        report,
        script="other.py",
        script_sha256="b" * 64,
        versions=RUN["versions"] | {"torch": "2.15.0"},
        environment={"NCCL_PROTO": "LL"},
    )
    assert differing(report, other) == {
        "script": ("train.py", "other.py"),
        "script's contents (SHA-256)": ("a" * 12, "b" * 12),
        "version of torch": ("2.11.0", "2.15.0"),
        "environment: NCCL_ALGO": ("Ring", None),
        "environment: NCCL_PROTO": (None, "LL"),
    }
    assert "the scripts differ: a step may not be the same work" in compared(report, other).remarks
    assert differing(report, changed(report, script="/elsewhere/train.py")) == {}


def test_descriptions_of_the_same_name_are_compared_field_by_field(report: dict[str, Any]) -> None:
    other = changed(report)
    other["run"]["descriptions"]["gpu"]["memory"]["total_nbytes"] = 40 << 30
    other["run"]["descriptions"]["cluster"]["network"]["fabric"]["oversubscription"] = 2.0
    assert differing(report, other) == {
        "gpu.memory.total_nbytes": (str(80 << 30), str(40 << 30)),
        "cluster.network.fabric.oversubscription": ("1.0", "2.0"),
    }


def test_of_different_gpus_the_main_facts_are_told(report: dict[str, Any]) -> None:
    other = changed(report)
    other["simulated"]["gpu"] = "a100-80g"
    other["run"]["descriptions"]["gpu"] = {"memory": {"total_nbytes": 40 << 30}, "peaks": [["bf16", 312e12]]}
    assert differing(report, other) == {
        "GPU": ("h200", "a100-80g"),
        "GPU memory, GiB": ("80", "40"),
        "GPU memory bandwidth, GB/s": ("3,350", None),
        "GPU clock, MHz": ("1,980", None),
        "GPU's peak in bf16, TFLOP/s": ("989", "312"),
    }


def test_an_older_report_is_compared_as_far_as_it_goes(report: dict[str, Any]) -> None:
    old = copy.deepcopy(report)
    del old["run"]
    old["simulated"]["host_mode"] = "none"
    found = compared(report, old)
    assert {one.what: one.values for one in found.differences} == {"host's time": ("modelled", "none")}
    assert any("the report of B is of an older version" in remark for remark in found.remarks)


def test_figures_have_changes(report: dict[str, Any]) -> None:
    other = copy.deepcopy(report)
    other["simulated"]["step"] |= {"median_ns": 2000}
    other["simulated"]["logged"] = [{"rank": 0, "rate": "tokens/s", "value": 10.0, "text": "10 tokens/s"}]
    for rank in other["simulated"]["ranks"]:
        rank["memory"]["allocated_peak_nbytes"] = 3 << 30
    figures = {one.name: one for one in compared(report, other).figures}
    assert figures["step time"].values == (0.0016, 0.002)
    assert figures["step time"].change(1) == pytest.approx(0.25)
    assert figures["tokens/s, logged by the script"].values == (None, 10.0)
    assert figures["tokens/s, logged by the script"].change(1) is None
    assert figures["memory allocated"].values == (None, 3.0)
    assert "MFU" not in figures


def test_the_parts_of_a_step_add_up_to_it(report: dict[str, Any]) -> None:
    other = copy.deepcopy(report)
    other["simulated"]["step"]["median_ns"] = 4_000_000
    for rank in other["simulated"]["ranks"]:
        rank |= {"compute_ns": 3000, "transfer_ns": 600, "peers_ns": 200, "host_bound_ns": 200, "idle_ns": 0}
    found = compared(report, other)
    assert sum(part.ms[0] for part in found.parts) == pytest.approx(0.0016)
    assert {part.name: part.ms[1] for part in found.parts} == {
        "compute": pytest.approx(3.0),
        "transfer": pytest.approx(0.6),
        "peers": pytest.approx(0.2),
        "host-bound": pytest.approx(0.2),
        "idle": 0.0,
    }
    assert "B's step is 3.998 ms longer than A's: compute +2.999 ms, transfer +0.599 ms, peers +0.200 ms" in str(found)


def test_copies_count_as_the_older_report_counts_them(report: dict[str, Any]) -> None:
    """A report of a version without the account has the time of copies in that of computing."""
    before, now = copy.deepcopy(report), copy.deepcopy(report)
    for rank in now["simulated"]["ranks"]:
        rank["copies_ns"] = rank["compute_ns"] // 4
        rank["compute_ns"] -= rank["copies_ns"]
    for rank in before["simulated"]["ranks"]:
        rank.pop("copies_ns", None)
    parts = compared(before, now).parts
    assert "copies" not in [part.name for part in parts]
    assert [part.change_ms(1) for part in parts] == pytest.approx([0.0] * len(parts), abs=1e-12)
    for rank in before["simulated"]["ranks"]:
        rank["copies_ns"] = 0
    changed = {part.name: part.change_ms(1) for part in compared(before, now).parts}
    assert changed["copies"] == pytest.approx(-changed["compute"])
    assert changed["copies"] > 0


def test_kernels_are_matched_by_signature_then_by_kernel_and_op(report: dict[str, Any]) -> None:
    other = copy.deepcopy(report)
    other["simulated"]["kernels"]["signatures"] = [
        signature("gemm;mm;2048;aten::mm;[[16]]", 60, 220_000, "gemm bf16"),
        signature("kernel;add;16;aten::add;[[8]]", 12, 11_000, "element-wise"),
        signature("kernel;fresh;16;aten::fresh;[[8]]", 6, 40_000, "reduction"),
    ]
    found = compared(report, other)
    # Two ranks, three steps: 60 launches are 10 a step and GPU.
    assert [(one.title, one.status, one.ms, one.launches) for one in found.kernels] == [
        ("gemm (aten::mm)", "other sizes", (pytest.approx(1.0), pytest.approx(2.2)), (10, 10)),
        ("kernel (aten::fresh)", "new", (0.0, pytest.approx(0.04)), (0, 1)),
        ("kernel (aten::old)", "gone", (pytest.approx(0.01), 0.0), (1, 0)),
        ("kernel m=16 (aten::add)", "both", (pytest.approx(0.02), pytest.approx(0.022)), (2, 2)),
    ]
    assert {one.name: one.ms for one in found.families} == {
        "gemm bf16": (pytest.approx(1.0), pytest.approx(2.2)),
        "element-wise": (pytest.approx(0.03), pytest.approx(0.022)),
        "reduction": (0.0, pytest.approx(0.04)),
    }
    lines = [line.split() for line in str(found).splitlines()]
    assert ["kernel", "(aten::fresh)", "[new]", "-", "0.040", "+0.040"] in lines
    assert ["kernel", "(aten::old)", "[gone]", "0.010", "-", "-0.010"] in lines
    assert max(len(line) for line in str(found).splitlines()) <= 110


def test_a_long_name_is_cut_and_no_figure(report: dict[str, Any]) -> None:
    other = copy.deepcopy(report)
    for one, mean_ns in ((report, 10_000), (other, 12_345_000)):
        long = signature(f"kernel;{'long' * 30};16;aten::op;[[8]]", 60, mean_ns, "element-wise")
        long["title"] = "long " * 30
        one["simulated"]["kernels"]["signatures"] = [long]
    (row,) = [line for line in str(compared(report, other)).splitlines() if line.startswith("long")]
    assert row.split("…")[1].split() == ["0.100", "123.45", "+123.35"]
    assert len(row) <= 110


def test_what_depends_on_sizes_is_the_work_that_another_policy_changes(report: dict[str, Any]) -> None:
    place = {"inner": "a.py:1", "line": "", "operation": "nonzero", "ranks": 1, "calls": 1, "most": 8, "chosen": 8}
    report["simulated"]["data_shapes"] = {"policy": "most", "places": [place]}
    other = copy.deepcopy(report)
    other["simulated"]["data_shapes"]["policy"] = "fraction:0.1"
    other["simulated"]["kernels"]["signatures"] = [
        signature("gemm;mm;1024;aten::mm;[[8]]", 60, 100_000, "gemm bf16"),
        signature("kernel;add;16;aten::add;[[8]]", 6, 10_000, "element-wise"),
        signature("kernel;old;16;aten::old;[[4]]", 6, 5_000, "element-wise"),
    ]
    found = compared(report, other)
    assert found.by_sizes == pytest.approx(((60 + 60) / 6180, 30 / 6090))  # half of the additions, all of the old ones
    assert "sizes that data decide: 1.9% of A's, 0.5% of B's GPU time depends on --data-shapes" in str(found)
    assert found.document()["by_sizes"] == list(found.by_sizes)
    assert compared(report, changed(other, arguments=["--lr", "1"])).by_sizes == (), "something else differs, too"


def test_collectives_come_from_the_reasons(report: dict[str, Any]) -> None:
    other = copy.deepcopy(report)
    for one, gpu_ns in ((report, 4_000_000), (other, 6_000_000)):
        row = {"title": "all_reduce 8 bytes, world", "gpu_ns": gpu_ns, "path_ns": 0, "calls": 3}
        one["simulated"]["reasons"] = {"missing": "", "collectives": {"gpu": [row], "path": [], "left_out": 0}}
    (collective,) = compared(report, other).collectives
    assert (collective.ms, collective.launches) == ((2.0, 3.0), (3, 3))
    assert "collectives that changed most" in str(compared(report, other))
    told = other["simulated"]["reasons"]["collectives"]
    told["gpu"][0] = told["gpu"][0] | {"title": "all_gather 8 bytes, world"}
    assert [one.status for one in compared(report, other).collectives] == ["new", "gone"]
    told["left_out"] = 5  # the first run's may be among them
    found = compared(report, other)
    assert [one.title for one in found.collectives] == ["all_gather 8 bytes, world"]
    assert "1 collectives are not compared: they are among the longest of some runs only" in found.remarks
    del other["simulated"]["reasons"]
    assert not any("one by one" in remark for remark in compared(report, other).remarks), "all calls are known"
    del other["simulated"]["calls"]  # a report of an older version
    found = compared(report, other)
    assert not found.collectives
    assert "collectives are not compared one by one: B has no reasons (run --reasons)" in found.remarks


def test_steps_that_do_not_compare_are_said(report: dict[str, Any]) -> None:
    other = copy.deepcopy(report)
    other["simulated"]["step"] |= {"source": "the whole run: neither optimizer steps nor ...", "median_ns": 9000}
    other["simulated"]["world_size"] = 4
    other["simulated"]["kernels"]["window"] = "run"
    other |= {"exit_code": 75, "failure": {"text": "deadlock"}}
    found = compared(report, other)
    assert [remark.partition(":")[0] for remark in found.remarks] == [
        "B failed with exit code 75",
        "no steps were found in B",
        "steps were found in different ways",
        "the runs have different numbers of GPUs",
        "GPU work is that of whole runs, divided by their steps",
    ]
    assert next(one for one in found.figures if one.name == "step time").change(1) is None
    assert "longer than A's" not in str(found)


def test_text_of_scripts_is_no_command_for_the_terminal(report: dict[str, Any]) -> None:
    text = str(compared(report, changed(report, arguments=["--name", "\x1b[31m[bold]red"])))
    assert "\x1b" not in text
    assert "\\x1b[31m[bold]red" in text


# ---- the command -----------------------------------------------------------------------------------------------------


def written(folder: Path, name: str, report: dict[str, Any]) -> str:
    (folder / name).mkdir()
    (folder / name / "report.json").write_text(json.dumps(report))
    return str(folder / name)


def test_the_command(report: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = written(tmp_path, "one", report)
    two = written(tmp_path, "two", changed(report, arguments=["--lr", "1"]))
    assert cli.run(["compare", one, two, one]) == 0
    text = capsys.readouterr().out
    assert f"A  {one}/report.json\nB  {two}/report.json\nC  {one}/report.json\n" in text
    assert ["argument", "--lr", "3e-4", "1", "3e-4"] in [line.split() for line in text.splitlines()]
    assert text.strip() == str(phantora_async.compare(one, Path(two), phantora_async.load(one)))
    assert cli.run(["compare", one, two, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == 1
    assert found["runs"] == [f"{one}/report.json", f"{two}/report.json"]
    assert {"what": "argument --lr", "values": ["3e-4", "1"]} in found["differences"]
    assert found["figures"][0]["name"] == "step time"
    assert found["figures"][0]["change"] == [0.0]
    assert len(found["kernels"]) == 3


def test_rules_that_a_run_breaks_end_the_command(
    report: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slower = copy.deepcopy(report)
    slower["simulated"]["step"]["median_ns"] *= 2
    one, two = written(tmp_path, "one", report), written(tmp_path, "two", slower)
    assert cli.run(["compare", one, two, "--fail-if", "step > +100%"]) == 0
    assert capsys.readouterr().err == ""
    assert cli.run(["compare", one, two, "--fail-if", "step > +200%, step > +3%"]) == 1
    assert f"{two}/report.json breaks the rules: step" in capsys.readouterr().err
    assert cli.run(["compare", two, one, "--fail-if", "step > +3%"]) == 0
    assert cli.run(["compare", one, two, "--fail-if", "steps > +3%"]) == ExitCode.USAGE
    assert cli.run(["compare", one, two, "--fail-if", ","]) == ExitCode.USAGE, "a gate without rules passes all"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        ("{", "not JSON"),
        ('{"schema": 0}', "written by another version of phantora-async"),
        ('{"schema": 1}', "exit_code: missing"),
    ],
)
def test_what_cannot_be_compared_is_wrong_usage(
    content: str | None, message: str, report: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = written(tmp_path, "good", report), tmp_path / "bad.json"
    if content is not None:
        bad.write_text(content)
    assert cli.run(["compare", good, str(bad)]) == ExitCode.USAGE
    shown = capsys.readouterr()
    assert message in shown.err
    assert "bad.json" in shown.err
    assert shown.out == ""


def test_one_run_is_not_enough(report: dict[str, Any], tmp_path: Path) -> None:
    assert cli.run(["compare", written(tmp_path, "one", report)]) == ExitCode.USAGE
    with pytest.raises(UsageError, match="nothing to compare with"):
        phantora_async.compare()
    with pytest.raises(UsageError, match="at most 26"):
        compared(*[report] * 27)


def with_calls(report: dict[str, Any], waits: dict[tuple[str, str], int], reduced: dict[int, int]) -> dict[str, Any]:
    """A report of two ranks and three steps. `waits`: calls by site and text of the line; `reduced`: by bytes."""
    other = copy.deepcopy(report)
    other["simulated"]["calls"] = {
        "window": "steps",
        "left_out": 0,
        "waits": [
            {"on": "stream", "site": site, "code": code, "calls": count} for (site, code), count in waits.items()
        ],
        "collectives": [
            {
                "title": f"all_reduce {nbytes:,} bytes f32, world[2]",
                "op": "all_reduce",
                "dtype": "f32",
                "on": "world[2]",
                "nbytes": nbytes,
                "calls": count,
                "site": "train.py:30 in step",
                "code": "loss.backward()",
            }
            for nbytes, count in reduced.items()
        ],
    }
    return other


def slower(report: dict[str, Any]) -> dict[str, Any]:
    other = copy.deepcopy(report)
    other["simulated"]["step"]["median_ns"] += 1_000_000
    return other


def test_the_line_of_a_new_item_is_named_and_lines_that_moved_are_not(report: dict[str, Any]) -> None:
    first = with_calls(report, {("train.py:40 in step", "print(loss.item())"): 6}, {1 << 20: 12})
    moved = {("train.py:41 in step", "print(loss.item())"): 6, ("train.py:40 in step", "norm.item()"): 12}
    found = compared(first, slower(with_calls(report, moved, {1 << 20: 12})))
    (changed,) = [one for one in found.waits if len(set(one.calls)) > 1]
    assert (changed.site, changed.code, changed.calls) == ("train.py:40 in step", "norm.item()", (0.0, 2.0))
    (told,) = [text for text in found.causes() if "waits" in text]
    assert told == "the host waits for the GPU: at train.py:40 in step `norm.item()` (0 -> 2 a step)"
    assert told in str(found).replace("\n", " ")


def test_an_edited_line_that_waits_as_often_is_no_change(report: dict[str, Any]) -> None:
    first = with_calls(report, {("train.py:40 in step", "print(loss.item())"): 6}, {})
    found = compared(first, with_calls(report, {("train.py:44 in step", "log(loss.item())"): 6}, {}))
    assert [set(one.calls) for one in found.waits] == [{1.0}]


def test_collectives_are_compared_without_reasons(report: dict[str, Any]) -> None:
    first = with_calls(report, {}, {1 << 20: 12})
    found = compared(first, slower(with_calls(report, {}, {1 << 20: 12, 4: 6})))
    assert found.remarks == ()
    assert (
        "collectives: all_reduce 4 bytes f32, world[2] at train.py:30 in step `loss.backward()` (0 -> 1 a step)"
        in found.causes()
    )
    assert [one.calls for one in found.calls] == [(2.0, 2.0), (0.0, 1.0)]


def test_larger_collectives_are_named_where_memory_grows(report: dict[str, Any]) -> None:
    """Gradients that are sent as FP64 take buffers four times as large as bf16 ones; the step is not longer."""

    def sent(nbytes: int, cached: int) -> dict[str, Any]:
        other = with_calls(report, {}, {nbytes: 6})
        parts = {"parameters": 4 << 20, "cached or fragmented": cached}
        other["simulated"]["memory"]["fullest"] = {"rank": 0, "parts": parts, "holders": []}
        return other

    found = compared(sent(1 << 20, 1 << 20), sent(4 << 20, 4 << 20))
    line = "world[2] at train.py:30 in step `loss.backward()`"
    assert found.causes() == [
        "memory: cached or fragmented +3.0 MiB",
        f"collectives: all_reduce 4,194,304 bytes f32, {line} (0 -> 1 a step), "
        f"all_reduce 1,048,576 bytes f32, {line} (1 -> 0 a step)",
    ]
    fewer = compared(sent(4 << 20, 1 << 20), sent(1 << 20, 4 << 20))
    assert fewer.causes() == ["memory: cached or fragmented +3.0 MiB"]
    # A longer step names them already.
    assert str(compared(sent(1 << 20, 1 << 20), slower(sent(4 << 20, 4 << 20)))).count("all_reduce 4,194,304") == 2


def test_what_needs_more_memory_is_named_with_its_line(report: dict[str, Any]) -> None:
    def held(activations: int, line: int) -> dict[str, Any]:
        other = copy.deepcopy(report)
        holders = [
            {"part": "activations", "op": "aten::addmm", "site": f"train.py:{line} in forward", "nbytes": 3 << 20},
            {"part": "activations", "op": "aten::clone", "site": "train.py:9 in forward", "nbytes": activations},
        ]
        parts = {"parameters": 4 << 20, "activations": (3 << 20) + activations}
        other["simulated"]["memory"]["fullest"] = {"rank": 0, "parts": parts, "holders": holders}
        return other

    found = compared(held(1 << 20, 7), held(2 << 20, 8))
    assert found.causes() == [
        "memory: activations +1.0 MiB",
        "held by aten::clone at train.py:9 in forward (activations) +1.0 MiB",
    ], "the line that has only moved is not named"
    assert "memory of the fullest GPU, MiB" in str(found)


@pytest.mark.parametrize("columns", ["20", "60", "220"])
def test_no_figure_is_cut_off(report: dict[str, Any], columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    other = slower(report)
    long = "kernel;add;16;aten::" + "x" * 300 + ";[[8]]"
    other["simulated"]["kernels"]["signatures"].append(signature(long, 6, 7_000_000, "element-wise"))
    text = str(compared(report, other))
    assert "…" in text, "the name is cut"
    assert "+7.000" in text
