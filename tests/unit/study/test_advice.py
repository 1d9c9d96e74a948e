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
from emu.contract.records import NcclKind
from phantora_async import cli
from phantora_async.api.results import Run
from phantora_async.errors import ExitCode, UsageError
from phantora_async.figures import TIME_ACCOUNTS
from phantora_async.options import RunOptions
from phantora_async.recording import load
from phantora_async.replaying.machine import Changes
from phantora_async.replaying.variants import Player, Variant
from phantora_async.study import advice
from phantora_async.study.advice import NO_HOST, _Base, advise, hides_nothing, text
from phantora_async.study.arguments import Worth, worth_trying
from phantora_async.study.patches import FUSED, TOOK_HOLD, Facts, Patch, patched, patches, took_hold
from phantora_async.study.unsimulated import reasons
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
OTHERS = """
parser.add_argument("--tp", type=int, default=4)
parser.add_argument("--vocab-size", type=int, default=50257)
parser.add_argument("--precision", default="fp32")
parser.add_argument("--offload", action="store_true")
parser.add_argument("--use-flash", action="store_true")
parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
parser.add_argument("--batch-size", type=int, default=2)
parser.add_argument("--grad-accum", type=int, default=4)
"""


def test_ranks_of_a_replica_vocabularies_and_switches(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OTHERS)
    found = worth_trying(tmp_path / "train.py", ["--offload"], ranks=16, of_server=8)
    assert [one.text for one in found] == [
        "--tp 1",
        "--tp 2",
        "--tp 8",
        "--vocab-size 50304",
        "--precision bf16",
        "without --offload",
        "--use-flash",
        "--no-compile",
        "--batch-size 4",
        "--batch-size 1",
        "--grad-accum 8",
        "--grad-accum 2",
        "--batch-size 4 --grad-accum 2",
    ]
    assert [one.text for one in found if one.work_by_flops] == ["--tp 1", "--tp 2", "--tp 8"]
    assert found[-1].work == 1.0, "as many sequences as before"
    assert len({one.kind for one in found[-5:]}) == 1, "batch and accumulation are never changed together but here"
    small = worth_trying(
        tmp_path / "train.py", ["--tp", "1", "--no-compile", "--batch-size", "3"], ranks=2, of_server=2
    )
    assert [one.text for one in small][:2] == ["--tp 2", "--vocab-size 50304"]
    assert "--compile" in [one.text for one in small]
    assert not any(" --grad-accum" in one.text and one.text.startswith("--batch-size 3") for one in small)


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
    Path("train.py").write_text("from torch.utils.checkpoint import checkpoint\nDDP(model, bucket_cap_mb=1)\n")
    programs: list[str] = []

    def run(options: RunOptions, environment: dict[str, str]) -> Any:
        done = runs.run(options, environment)
        programs.append(Path(options.script).read_text())
        took = "fused=True" in programs[-1]
        done.run_dir = Path("logs")
        done.run_dir.mkdir(exist_ok=True)
        (done.run_dir / "rank0.log").write_text(f"{TOOK_HOLD} (0)\n" if took else "trained\n")
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
    assert "not tried: CUDA graphs" in text(told)


F32 = "gemm;cublasGemmEx;n;n;256;16;256;1;f32;f32;f32;f32;default;aten::mm;[[256, 16]]"
FUSED_ADAM = "kernel;adam;8;512;0;aten::_fused_adamw_;[[256]]"
COMPILED = "kernel;triton_poi_fused_0;8;512;0;;[[256]]"
REDUCED = frozenset({(NcclKind.ALL_REDUCE, "bf16")})
SHARDED = frozenset({(NcclKind.ALL_GATHER, "f32"), (NcclKind.REDUCE_SCATTER, "f32"), (NcclKind.ALL_REDUCE, "f32")})
FUSING = ["a fused optimizer", "an optimizer that takes all parameters at once", "torch.compile of the model"]
OF_DDP = [
    "DistributedDataParallel(bucket_cap_mb=100)",
    "DistributedDataParallel(gradient_as_bucket_view=True)",
    "FSDP2 in place of DistributedDataParallel",
]


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        (Facts(1, 1, [F32]), ["TF32 for products of FP32", "autocast to bf16 around the whole script", *FUSING]),
        (Facts(1, 1, [F32.replace("f32", "bf16", 3), FUSED_ADAM, COMPILED]), []),
        (Facts(2, 1, [FUSED_ADAM, COMPILED], collectives=REDUCED), OF_DDP),
        (
            Facts(2, 1, [FUSED_ADAM, COMPILED], "DDP(m, bucket_cap_mb=1)", REDUCED, reduced_again=True),
            [
                "DistributedDataParallel(bucket_cap_mb=25)",
                *OF_DDP[:2],
                "no_sync() for all micro batches but the last one before an optimizer's step",
                *OF_DDP[2:],
            ],
        ),
        (
            Facts(2, 1, [FUSED_ADAM, COMPILED], "dist.all_reduce(x.grad)", frozenset({(NcclKind.ALL_REDUCE, "f32")})),
            [
                *OF_DDP[:2],
                "gradients that DistributedDataParallel sends as bf16",
                "all-reduces of gradients that begin in the backward pass, each as soon as its gradient is known",
                *OF_DDP[2:],
            ],
        ),
        (
            Facts(4, 2, [FUSED_ADAM, COMPILED], "CPUOffloadPolicy()", SHARDED),
            [
                "parameters that stay gathered from the forward to the backward pass",
                "replicas in place of shards, as in data parallelism",
                "shards inside each server, replicas between the 2 servers",
                "parameters that are gathered as bf16",
                "gradients that are reduced as bf16",
                "parameters and optimizer states on the GPU",
            ],
        ),
        (
            Facts(1, 1, [FUSED_ADAM, COMPILED], waits=["train.py:3"]),
            ["no waits for the GPU: a line reads its loss once"],
        ),
    ],
)
def test_which_changes_a_run_could_use(facts: Facts, found: list[str]) -> None:
    assert [one.what.partition(" (")[0] for one in patches(facts)] == found


def test_changes_of_one_kind_exclude_each_other(rec: Path, runs: Runs) -> None:
    """Two sizes of buckets make the run faster, and so does a fused optimizer: the better size and the optimizer are
    run together, in one program.
    """
    Path("train.py").write_text("DDP(model, bucket_cap_mb=1)\n")
    steps = {"bucket_cap_mb=25)": 30, "bucket_cap_mb=100)": 20, "fused=True": 25, "gradient_as": 90}
    programs: list[str] = []

    def run(options: RunOptions, environment: dict[str, str]) -> Any:
        done = runs.run(options, environment)
        text = Path(options.script).read_text()
        programs.append(text)
        found = [ms for words, ms in steps.items() if words in text]
        done.report["simulated"]["step"]["median_ns"] = sum(found) * 1_000 if found else 90_000_000
        done.run_dir = Path("logs")
        done.run_dir.mkdir(exist_ok=True)
        # Of several changes, the last one is met no more.
        met = range(max(1, text.count("def _change_") - 1))
        (done.run_dir / "rank0.log").write_text("".join(f"{TOOK_HOLD} ({number})\n" for number in met))
        return done

    told = advise(rec, ["auto"], run).document
    (together,) = [one for one in told["tries"] if one["what"].startswith("together: ")]
    assert together["step_s"] == pytest.approx(45e-6 if "gradient_as" not in programs[-1] else 135e-6)
    assert "bucket_cap_mb=100)" in together["what"]
    assert "fused=True" in together["what"]
    last = str(together["what"]).partition(" (without effect beside the others: ")[2]
    assert last
    assert "bucket_cap_mb" not in last
    assert "bucket_cap_mb=25)" not in programs[-1]


def simulated_of(*rows: tuple[str, str, float], waits: int = 0, host: int = 50) -> dict[str, Any]:
    """The report of a rank whose GPU computes for 60 % of a step, and is empty for 40 % as the host works. `host`: the
    share of the step in % in which the host has work of its own.
    """
    signatures = [
        {
            "signature": "x",
            "title": title,
            "model": model,
            "source": "modelled",
            "launches": 1,
            "total_ns": ns,
            "mean_ns": ns,
        }
        for title, model, ns in rows
    ]
    total = sum(ns for _, _, ns in rows)
    times = dict.fromkeys((one.ns for one in TIME_ACCOUNTS), 0) | {"compute_ns": 60, "host_bound_ns": 40}
    return {
        "kernels": {
            "gpu_ns": total,
            "window": "run",
            "signatures": signatures,
            "ranks": [{"ranks": [0], "launches": [1] * len(rows)}],
        },
        "ranks": [{"rank": 0, **times, "host_work_ns": host, "window_ns": 100}],
        "step": {"counted": 1, "median_ns": 100, "source": "markers"},
        "calls": {"waits": [{"site": "train.py:9", "code": "loss.item()", "calls": 4, "on": "copy"}] * waits},
    }


@pytest.mark.parametrize(
    ("simulated", "found"),
    [
        (
            simulated_of(("gemm bf16 m=1", "gemm bf16", 9.0), ("gemm", "gemm, unaligned", 1.0)),
            "10.0% of GPU work are products",
        ),
        (
            simulated_of(
                ("soft (aten::_softmax)", "softmax", 1.0), ("gemm bf16 (aten::bmm)", "gemm bf16", 3.0), ("m", "x", 4.0)
            ),
            "50.0% of GPU work are softmax and batched products",
        ),
        (
            simulated_of(("copy h2d, pageable", "", 1.0), ("m", "x", 3.0)),
            "25.0% of GPU work are copies of pageable memory",
        ),
        (
            simulated_of(("m", "x", 3.0), waits=1),
            "the host waits for the GPU, which waits for the host afterwards (40.0% of the step at most)",
        ),
        (
            simulated_of(("m", "x", 3.0), waits=1, host=75),
            "the host waits for the GPU, which waits for the host afterwards (25.0% of the step at most)",
        ),
        (
            simulated_of(("m", "x", 3.0), waits=1, host=99),
            "the host's own work takes 99% of the step, with 1 launches: fewer of them",
        ),
    ],
)
def test_reasons_that_no_simulation_can_mend(simulated: dict[str, Any], found: str) -> None:
    (one,) = reasons({"simulated": simulated})
    assert one.startswith(found)


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
    options = patched(RunOptions(script, ["--x"], module=module), [FUSED], tmp_path)
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


def test_changes_of_one_program_share_no_names_and_each_says_whether_it_took_hold(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "job.py").write_text("import torch\nprint(torch.asked())\n")
    first = Patch(
        "first", "_name = 'first'\ndef _asked():\n    took_hold()\n    return _name\ntorch.asked = _asked\n", ""
    )
    second = Patch("second", "_name = 'second'\ntorch.never_asked = took_hold\n", "")
    options = patched(RunOptions(str(tmp_path / "job.py")), [first, second], tmp_path)
    done = subprocess.run(
        [sys.executable, str(options.script)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert done.stdout == "first\n", done.stderr
    assert [took_hold(done.stderr, number) for number in (0, 1)] == [True, False]


@pytest.mark.parametrize(
    ("worth", "tflops", "times"),
    [
        (Worth("--batch 8", 2.0), 2.06, 2.0),  # what is done once for each step weighs little
        (Worth("--accumulate 8", 2.0), 1.0, 1.0),  # one batch in more parts
        (Worth("--tp 2", work_by_flops=True), 0.5, 0.5),
        (Worth("--compile"), 0.9, 1.0),
        (Worth("--batch 8", 2.0), None, 2.0),
    ],
)
def test_a_step_s_work_is_that_of_its_operations(worth: Worth, tflops: float | None, times: float) -> None:
    """Steps take as long as before, on as many GPUs, so that rates are as work is."""

    def simulated(rate: float | None) -> dict[str, Any]:
        return {"work": {"tflops_per_gpu": rate}, "step": {"median_ns": 1000}, "world_size": 4}

    base = _Base(Any, 1000, simulated(1.0), Any)  # type: ignore[arg-type]
    assert base._work(Run({"simulated": simulated(tflops)}, Path("report.json")), [worth]) == pytest.approx(times)


@pytest.mark.parametrize(
    ("worth", "rows", "times"),
    [
        # Four ranks in two replicas of two: with one rank each there are twice as many replicas, each with its batch.
        (Worth("--tp 1", work_by_flops=True, copies=0.5), 100, 2.0),
        (Worth("--tp 1", work_by_flops=True, copies=0.5), 50, 1.0),  # a script that divides one batch by its replicas
        (Worth("--pp 1", work_by_flops=True), 200, 2.0),  # the loss was on every second rank
    ],
)
def test_where_ranks_share_work_the_tokens_are_the_measure(worth: Worth, rows: int, times: float) -> None:
    def simulated(rows: int, tflops: float) -> dict[str, Any]:
        signature = f"kernel;x;1,1,1;aten::nll_loss_forward;[[{rows}, 32000], [{rows}], [], [], []]"
        signatures = [{"signature": signature, "launches": 8}, {"signature": "gemm;bf16;1;2;3", "launches": 80}]
        return {
            "work": {"tflops_per_gpu": tflops},
            "step": {"median_ns": 1000, "counted": 2},
            "world_size": 4,
            "kernels": {"window": "steps", "signatures": signatures},
            "ranks": [{"rank": rank, "counted_steps": [4, 5]} for rank in range(4)],
        }

    base = _Base(Any, 1000, simulated(100, 1.0), Any)  # type: ignore[arg-type]
    assert base._work(Run({"simulated": simulated(rows, 1.3)}, Path("report.json")), [worth]) == pytest.approx(times)


def test_the_work_of_changes_together_is_that_of_each(rec: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the batch and three times the replicas, each in a step as long as before: six times the work."""
    Path("train.py").write_text(
        "parser.add_argument('--batch-size', type=int, default=3)\nparser.add_argument('--tp', type=int, default=2)\n"
    )
    monkeypatch.setattr(advice, "_flops", lambda simulated: simulated.get("flops", 1.0))
    base_s = advise(rec, [], runs.run).document["step_s"]

    def change(options: RunOptions, simulated: dict[str, Any]) -> None:
        arguments = list(options.arguments)
        simulated["step"]["median_ns"] = round(1e9 * base_s)
        simulated["flops"] = (2.0 if "--batch-size" in arguments else 1.0) * (3.0 if "--tp" in arguments else 1.0)

    runs.change = change
    changes = {
        one["what"].partition(" (")[0]: one["change"] for one in advise(rec, ["auto"], runs.run).document["tries"]
    }
    assert changes["--batch-size 6"] == pytest.approx(-1 / 2)
    assert changes["--tp 1"] == pytest.approx(-2 / 3)
    assert changes["together: --batch-size 6"] == pytest.approx(-5 / 6)


def test_a_launcher_s_script_is_not_changed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a launcher starts the script"):
        patched(RunOptions("torchrun", ["x.py"], launcher=True), [FUSED], tmp_path)


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
