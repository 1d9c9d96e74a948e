"""`advise`: every line is a replay of the recording, or a run with other arguments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from emu.contract import records
from phantora_async import cli
from phantora_async.errors import ExitCode, UsageError
from phantora_async.options import RunOptions
from phantora_async.recording import load
from phantora_async.replaying.machine import Changes
from phantora_async.replaying.variants import Player, Variant
from phantora_async.study.advice import NO_HOST, advise, hides_nothing, text
from phantora_async.study.arguments import worth_trying
from phantora_async.study.patches import FUSED, TOOK_HOLD, patched, patches, took_hold
from tests.unit.replay.recordings import record
from tests.unit.virtual_time.scripted import FixedNetwork, Script, world_comm

from .conftest import Runs, record_in

RUN = {"script": "train.py", "arguments": ["--layers", "2"], "options": {"world_size": 2, "record": "rec"}}


@pytest.fixture
def rec(runs: Runs) -> Path:
    """The recording of two GPUs of a server; a step is an all-reduce of 64 MiB."""
    record_in(Path("rec"))
    Path("rec/run.json").write_text(json.dumps(RUN))
    return Path("rec")


def test_each_line_is_a_replay(rec: Path, runs: Runs) -> None:
    told = advise(rec, [], runs.run).document
    player = Player(load(rec), frozenset())
    base = player.play(Variant("", Changes())).step_ns
    simple = player.play(Variant("", Changes(nccl=("NCCL_PROTO=Simple",)))).step_ns
    twice = player.play(Variant("", Changes(network=("server.gpu_gbps=6400",)))).step_ns
    assert told["step_s"] == base / 1e9
    found = {one["what"]: one["change"] for one in told["tries"]}
    assert found["NCCL_PROTO=Simple"] == simple / base - 1
    assert found["NVLink twice as fast"] == twice / base - 1
    assert any(found.values())
    assert "network cards twice as fast" not in found, "one server needs none"
    assert NO_HOST in found
    assert [one["change"] for one in told["tries"]] == sorted(found.values())
    assert runs.asked == []


def test_arguments_are_runs_compared_by_tokens_where_these_are_known(rec: Path, runs: Runs) -> None:
    def change(options: RunOptions, simulated: dict[str, Any]) -> None:
        if "--bad" in options.arguments:
            raise UsageError("unrecognised argument --bad")
        simulated["step"]["median_ns"] = 10_000_000

    runs.change = change
    told = advise(rec, ["--batch 2", "--bad"], runs.run).document
    assert list(runs.asked[0].arguments) == ["--layers", "2", "--batch", "2"]
    assert (runs.asked[0].world_size, runs.asked[0].record) == (2, None)
    (batch,) = [one for one in told["tries"] if one["what"] == "--batch 2"]
    assert batch["change"] == pytest.approx(0.01 / told["step_s"] - 1)
    (bad,) = [one for one in told["unknown"] if one["what"] == "--bad"]
    assert bad["reason"] == "unrecognised argument --bad"


SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("-b", "--micro-batch-size", type=int, default=4)
parser.add_argument("--eval-batch-size", type=int, default=8)
parser.add_argument("--num-batches", type=int, default=8)
parser.add_argument("--recompute", action="store_true")
parser.add_argument("--compile", action="store_true")
"""


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([], ["--micro-batch-size 8", "--micro-batch-size 2", "--recompute", "--compile"]),
        (["-b", "1", "--compile"], ["--micro-batch-size 2", "--recompute", "without --compile"]),
        (
            ["--micro-batch-size=6", "--recompute"],
            ["--micro-batch-size 12", "--micro-batch-size 3", "without --recompute", "--compile"],
        ),
    ],
)
def test_what_a_script_s_text_names(tmp_path: Path, given: list[str], found: list[str]) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    assert [one.text for one in worth_trying(tmp_path / "train.py", given)] == found


def test_a_batch_that_is_found_is_compared_by_its_work(rec: Path, runs: Runs) -> None:
    """Twice the batch in 1.5 times the step is a quarter less for each token."""
    Path("train.py").write_text(SCRIPT)

    def change(options: RunOptions, simulated: dict[str, Any]) -> None:
        simulated["step"]["median_ns"] = round(1.5e9 * base_s)

    base_s = advise(rec, [], runs.run).document["step_s"]
    runs.change = change
    told = advise(rec, ["auto"], runs.run).document
    assert len([one for one in runs.arguments if one != ["--layers", "2"]]) == 4
    changes = {one["what"]: one["change"] for one in told["tries"] if one["what"].startswith("--")}
    assert changes["--micro-batch-size 8 (steps of 2 times the work)"] == pytest.approx(-0.25, abs=1e-6)
    assert changes["--recompute"] == pytest.approx(0.5, abs=1e-6)


def test_a_script_that_cannot_be_read(rec: Path, runs: Runs) -> None:
    Path("train.py").write_text("def")
    with pytest.raises(UsageError, match="no Python that can be read"):
        advise(rec, ["auto"], runs.run)
    assert runs.asked == []


MORE = """
parser.add_argument("--bucket-mb", type=float, default=0.1)
parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
parser.add_argument("--microbatches", type=int, default=4)
"""


def test_buckets_types_and_micro_batches_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MORE)
    found = worth_trying(tmp_path / "train.py", [])
    assert [one.text for one in found] == ["--bucket-mb 25", "--dtype bf16", "--microbatches 8", "--microbatches 2"]
    assert {one.work for one in found} == {1.0}, "a step does the same work"
    assert worth_trying(tmp_path / "train.py", ["--bucket-mb", "25", "--dtype", "bf16", "--microbatches", "0"]) == []


def test_a_switch_that_was_given_is_left_out(rec: Path, runs: Runs) -> None:
    Path("train.py").write_text(SCRIPT)
    Path("rec/run.json").write_text(json.dumps(RUN | {"arguments": ["--recompute", "--layers", "2"]}))
    advise(rec, ["auto"], runs.run)
    assert ["--layers", "2"] in runs.arguments


def test_defaults_of_pytorch_are_changed_from_outside(rec: Path, runs: Runs) -> None:
    """The change of a log that says that it took hold is advice, with the memory of its run; of another it is said why
    not.
    """
    Path("train.py").write_text("from torch.utils.checkpoint import checkpoint\n")
    programs: list[str] = []

    def run(options: RunOptions, environment: dict[str, str]) -> Any:
        done = runs.run(options, environment)
        programs.append(Path(options.script).read_text())
        took = "fused=True" in programs[-1]
        done.run_dir = Path("logs")
        done.run_dir.mkdir(exist_ok=True)
        (done.run_dir / "rank0.log").write_text(f"{TOOK_HOLD}\n" if took else "trained\n")
        return done

    told = advise(rec, ["auto"], run).document
    assert [list(one.arguments) for one in runs.asked] == [["--layers", "2"]] * len(programs)
    (fused,) = [one for one in told["tries"] if one["what"].startswith("a fused optimizer")]
    assert (fused["step_s"], fused["memory_nbytes"]) == (0.4, 60 << 30)
    missing = {one["what"]: one["reason"] for one in told["unknown"]}
    assert missing["DistributedDataParallel(bucket_cap_mb=25)"] == "the script makes no DistributedDataParallel"
    assert any("no recomputation" in what for what in missing)
    assert not any("DataLoader" in program for program in programs), "the script has none"
    assert "60.00 GiB reserved" in text(told)
    assert "not tried: torch.compile" in text(told)


def test_which_changes_a_run_could_use() -> None:
    f32 = "gemm;cublasGemmEx;n;n;256;16;256;1;f32;f32;f32;f32;default;aten::mm;[[16, 256]]"
    known = {one.what.partition(" (")[0] for one in patches(ranks=1, signatures=[f32], script="")}
    assert known == {
        "TF32 for products of FP32",
        "autocast to bf16 around the whole script",
        "a fused optimizer",
        "an optimizer that takes all parameters at once",
    }
    fused = "kernel;adam;8;512;0;aten::_fused_adamw_;[[256]]"
    assert list(patches(ranks=1, signatures=[f32.replace("f32", "bf16"), fused], script="")) == []


FAKE_TORCH = """
class Made:
    def __init__(self, params=(), lr=1.0, **keywords):
        self.keywords = keywords
"""


@pytest.mark.parametrize("module", [False, True])
def test_the_program_runs_the_script_as_it_is(tmp_path: Path, module: bool) -> None:
    """The stand-in for PyTorch has what the change needs; arguments, names and the folder are the script's own."""
    torch = tmp_path / "site" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text(
        FAKE_TORCH + "import types\noptim = types.SimpleNamespace(Adam=Made, AdamW=Made, SGD=Made, Adagrad=Made)\n"
    )
    work = tmp_path / "work"
    work.mkdir()
    (work / "beside.py").write_text("here = True\n")
    (work / "job.py").write_text(
        "import sys, beside, torch\nmade = torch.optim.AdamW(lr=2.0)\n"
        "print(__name__, sys.argv[1:], made.keywords['fused'])\n"
    )
    script = "job" if module else str(work / "job.py")
    options = patched(RunOptions(script, ["--x"], module=module), FUSED, tmp_path)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), *([str(work)] * module)])}
    done = subprocess.run(
        [sys.executable, str(options.script), *options.arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.stdout == "__main__ ['--x'] True\n", done.stderr
    assert took_hold(done.stderr)


def test_a_launcher_s_script_is_not_changed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a launcher starts the script"):
        patched(RunOptions("torchrun", ["x.py"], launcher=True), FUSED, tmp_path)


def test_text_says_what_is_better_the_same_and_worse() -> None:
    def one(what: str, change: float | None, **more: Any) -> dict[str, Any]:
        return {"what": what, "step_s": 0.1, "change": change, "by_tokens": False, "reason": ""} | more

    told = {
        "gpus": 8,
        "gpu": "h100",
        "step_s": 0.1,
        "tries": [one("A", -0.2, by_tokens=True), one("B", -0.001), one("C", 0.002), one("D", 0.3)],
        "unknown": [one("E", None, reason="it left its path")],
    }
    assert text(told).splitlines() == [
        "8 x h100, a step takes 100.0 ms as recorded; each line is a simulation:",
        "  A: time of a token -20.0% (100.0 ms a step)",
        "not worth trying (less than 0.5%): B; C",
        "worse: D: step +30.0% (100.0 ms a step)",
        "not known: E: it left its path",
    ]


def test_text_has_five_lines_of_what_to_try() -> None:
    tries = [
        {"what": f"try {number}", "step_s": 0.1, "change": change, "by_tokens": False, "reason": ""}
        for number, change in enumerate([-0.7, -0.6, -0.5, -0.4, -0.3, -0.2, -0.1])
    ]
    told = {"gpus": 8, "gpu": "h100", "step_s": 0.1, "tries": tries, "unknown": []}
    shown = text(told).splitlines()[1:]
    assert [line.split(":")[0].strip() for line in shown[:5]] == ["try 0", "try 1", "try 2", "try 3", "try 4"]
    assert shown[5:] == ["  2 more that bring less: --json"]


def test_the_command(rec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["advise", "rec"]) == 0
    assert "2 x h200, a step takes" in capsys.readouterr().out
    assert cli.run(["advise", "rec", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gpus"] == 2
    assert cli.run(["advise", "nowhere"]) == ExitCode.USAGE
    assert str(advise("rec")).startswith("2 x h200, a step takes")
    with pytest.raises(UsageError, match="arguments: expected a list of texts"):
        advise("rec", "auto")
    for words, fault in (("", "no arguments"), ("'--batch 2", "not words as a shell reads them: No closing quotation")):
        assert cli.run(["advise", "rec", "--try", words]) == ExitCode.USAGE
        assert fault in capsys.readouterr().err


def of_buckets(folder: Path, *, at_once: bool, **told: Any) -> Path:
    """Two steps of two ranks: a backward pass of two buckets, each all-reduced on a stream of its own. The stream that
    computes waits for it at once, or after the pass.
    """
    ranks = [Script(rank, 2, world_comm(2)) for rank in range(2)]
    for rank, script in enumerate(ranks):
        script.add(records.CommInit.encode(0, 1, 2, rank, rank, 0, payload=b"world".ljust(128, b"\0")))
        for _ in range(2):
            sums = []
            for _ in range(2):
                script.segment(1000, after=10).all_reduce(1 << 20)
                sums.append(script.record(stream=2))
                if at_once:
                    script.wait(sums.pop(), stream=1)
            for one in sums:
                script.segment(1000).wait(one, stream=1)
            script.segment(1000).sync().step()
        script.bye()
    folder.mkdir()
    record(ranks, folder, FixedNetwork(), 64)
    (folder / "run.json").write_text(json.dumps(RUN | told))
    return folder


NEW = {"versions": {"torch": "2.15.0+cu132"}, "environment": {}}


@pytest.mark.parametrize(
    ("at_once", "told", "expected"),
    [
        (True, NEW, True),
        (True, {"versions": {"torch": "2.16.1"}}, True),
        (False, NEW, False),
        (True, {"versions": {"torch": "2.11.0+cu130"}}, False),
        (True, NEW | {"environment": {"TORCH_DIST_USE_NCCL2": "0"}}, False),
        (True, {}, False),
    ],
)
def test_all_reduces_that_hide_nothing_are_tried_with_the_earlier_backend(
    at_once: bool, told: dict[str, Any], expected: bool, runs: Runs
) -> None:
    folder = of_buckets(Path("buckets"), at_once=at_once, **told)
    assert hides_nothing(load(folder)) == expected
    document = advise(folder, [], runs.run).document
    tried = [one for one in document["tries"] if one["what"].startswith("TORCH_DIST_USE_NCCL2=0: ")]
    assert [one["step_s"] for one in tried] == [0.4] * expected
    assert runs.environments == [{"TORCH_DIST_USE_NCCL2": "0"}] * expected
    assert runs.arguments == [["--layers", "2"]] * expected
