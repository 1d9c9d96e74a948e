"""`phantora-async profile SCRIPT`: its options, what it starts, and what it makes of a trace. The interpreter that
would run the script on a GPU is a stand-in that leaves a trace made by hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import profiles
from phantora_async import cli
from phantora_async.gpu_profile.rank_on_gpu import ProfiledJob, _environment
from phantora_async.gpu_profile.trace_times import STAND_IN, times_in

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
ABOUT = {
    "gpu": "NVIDIA H200",
    "driver": "580.1",
    "power_limit_w": 700.0,
    "full_mhz": 1980,
    "sm_mhz": [1980] * 5,
    "power_w": [400.0, 500.0],
    "torch": "2.11.0",
    "cuda": "13.0",
    "cudnn": "91900",
    "nccl": "2.28.9",
    "python": "3.12",
}


def event(category: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, "tid": 1, "pid": 1, "args": args}


def kernel(name: str, ts: float, dur: float, correlation: int, stream: int = 7) -> dict[str, Any]:
    shape = {"grid": [8, 1, 1], "block": [128, 1, 1], "shared memory": 0}
    return event("kernel", name, ts, dur, correlation=correlation, stream=stream, **shape)


def trace_events(durations_us: list[float]) -> list[dict[str, Any]]:
    """Adds that took so long, and a copy that takes the place of a collective."""
    events = []
    for number, dur in enumerate(durations_us):
        at = 1000.0 * number
        events += [
            event("cpu_op", "aten::add", at, 20, **{"External id": number, "Input Dims": [[8192], [8192], []]}),
            event("cuda_runtime", "cudaLaunchKernel", at + 2, 3, correlation=number),
            kernel(f"{ADD}(int)", at + 30, dur, number),
        ]
    return [
        *events,
        event("user_annotation", STAND_IN, 500_000, 50),
        event("cuda_runtime", "cudaLaunchKernel", 500_010, 3, correlation=777),
        kernel("copy(int)", 500_030, 900.0, 777),
    ]


@pytest.fixture
def gpu_python(tmp_path: Path) -> Path:
    """An interpreter that sees an H200 and leaves what `answer` says: one result a call."""
    program = tmp_path / "python"
    program.write_text(
        f"""#!{sys.executable}
import json, os, pathlib, sys
here = pathlib.Path({str(tmp_path)!r})
if "get_device_name" in sys.argv[2]:
    print(json.dumps(json.loads((here / "gpus.json").read_text())))
    sys.exit()
task = json.loads(pathlib.Path(sys.argv[4]).read_text())
calls = here / "calls.jsonl"
with calls.open("a") as file:
    print(json.dumps(task | {{"environment": dict(os.environ)}}), file=file)
answer = json.loads((here / "answers.json").read_text())[len(calls.read_text().splitlines()) - 1]
if "code" in answer:
    sys.exit(answer["code"])
trace = pathlib.Path(task["folder"], "trace.json")
trace.write_text(json.dumps({{"traceEvents": answer.pop("events")}}))
pathlib.Path(task["folder"], "result.json").write_text(json.dumps(answer | {{"trace": str(trace)}}))
"""
    )
    program.chmod(0o755)
    (tmp_path / "gpus.json").write_text('["NVIDIA H200"]')
    (tmp_path / "train.py").write_text("")
    return program


def answers(folder: Path, *found: dict[str, Any]) -> None:
    (folder / "answers.json").write_text(json.dumps(found))


def calls(folder: Path) -> list[dict[str, Any]]:
    path = folder / "calls.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(python: Path, *options: str) -> int:
    folder = python.parent
    table = str(folder / "mine.times.gz")
    return cli.run(["profile", "--python", str(python), "-o", table, *options, str(folder / "train.py"), "--lr", "1"])


def test_a_table_with_its_origin(gpu_python: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    answer = ABOUT | {"first_step": 4, "steps": 2, "events": trace_events([2.0, 2.02, 2.5, 3.5])}
    answers(tmp_path, answer, answer)
    assert run(gpu_python, "-n", "16", "--rank", "9") == 0
    table = profiles.load_table(tmp_path / "mine.times.gz")
    [origin] = table.origins
    assert origin["gpu"] == "NVIDIA H200"
    assert (origin["driver"], origin["nccl"], origin["power_limit_w"]) == ("580.1", "2.28.9", "700")
    assert origin["command"].startswith("phantora-async profile -n 16 --rank 9 ")
    assert origin["command"].endswith("train.py --lr 1")
    [measured] = table.times.values()
    assert (measured.solo_ns, measured.contended_ns, measured.executions) == (2505, None, 4)
    said = capfd.readouterr().out
    assert "rank 9 of 16 on NVIDIA H200; traced: steps 4 to 5" in said
    assert "4 kernels, copies and library calls of 1 signatures; GPU time 0.01 ms per step" in said
    assert "25.0% of the GPU time is within 5 %" in said
    assert "phantora-async run --kernel-times " in said
    assert run(gpu_python, "-n", "16", "--rank", "9", "--json") == 0
    assert json.loads(capfd.readouterr().out)["gpu_ms_per_step"] == pytest.approx(0.00501)


def test_what_the_rank_is_told(gpu_python: Path, tmp_path: Path) -> None:
    answers(tmp_path, ABOUT | {"first_step": 4, "steps": 1, "events": trace_events([2.0])})
    assert run(gpu_python, "-n", "16", "--rank", "9", "--steps", "7", "--whole") == 0
    [call] = calls(tmp_path)
    assert (call["rank"], call["world_size"], call["steps"], call["warm"]) == (9, 16, 7, 3)
    assert (call["to_the_end"], call["everything"], call["arguments"]) == (True, False, ["--lr", "1"])
    told = call["environment"]
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
    assert [told[name] for name in names] == ["9", "0", "16", "8", "1", "2"]
    assert not Path(call["folder"]).exists()


def test_one_gpu_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    job = ProfiledJob("train.py", False, (), 0, 1, 1, 3, False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert _environment(job, "/x")["CUDA_VISIBLE_DEVICES"] == "0"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert _environment(job, "/x")["CUDA_VISIBLE_DEVICES"] == "3"


@pytest.mark.parametrize("first", [{"first_step": 2, "steps": 0, "events": []}, {"code": 0}])
def test_a_script_without_steps_is_traced_as_a_whole(
    first: dict[str, Any], gpu_python: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answers(tmp_path, first, ABOUT | {"first_step": 1, "steps": 0, "events": trace_events([2.0])})
    assert run(gpu_python) == 0
    assert [call["everything"] for call in calls(tmp_path)] == [False, True]
    said = capfd.readouterr()
    assert "no step was traced: the script runs again" in said.err
    assert "traced: the whole script" in said.out
    assert "GPU time 0.00 ms\n" in said.out


def test_a_script_that_uses_no_gpu(gpu_python: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    answers(tmp_path, ABOUT | {"first_step": 4, "steps": 3, "events": []})
    assert run(gpu_python) == 2
    assert "the script did no work on the GPU" in capfd.readouterr().err
    assert not (tmp_path / "mine.times.gz").exists()


@pytest.mark.parametrize(("code", "told"), [(3, 3), (1, 1)])
def test_a_script_that_fails(
    code: int, told: int, gpu_python: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answers(tmp_path, {"code": code})
    assert run(gpu_python) == told
    assert f"the script ended with exit code {code}; nothing was written" in capfd.readouterr().err
    assert not (tmp_path / "mine.times.gz").exists()


def test_without_a_gpu(gpu_python: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gpus.json").write_text("[]")
    assert run(gpu_python) == 69
    assert "no GPU: PyTorch sees none on this machine" in capfd.readouterr().err
    assert calls(tmp_path) == []


def test_an_unknown_gpu(gpu_python: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gpus.json").write_text('["NVIDIA X9"]')
    assert run(gpu_python) == 2
    assert "there is no description of a NVIDIA X9" in capfd.readouterr().err
    answers(tmp_path, ABOUT | {"first_step": 4, "steps": 1, "gpu": "NVIDIA X9", "events": trace_events([2.0])})
    assert run(gpu_python, "--gpu", "h100") == 0
    [origin] = profiles.load_table(tmp_path / "mine.times.gz").origins
    assert origin["gpu"] == "NVIDIA X9"


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--steps", "0"], "--steps 0: expected 1 to 1,000"),
        (["-n", "4", "--rank", "4"], "--rank 4 of -n 4: ranks are 0 to 3"),
        (["--nproc-per-node", "0"], "--nproc-per-node 0: must be at least 1"),
        (["--gpu", "nonesuch"], "nonesuch"),
        (["--rounds", "3"], "--rounds is no option of profile SCRIPT"),
        (["-o", "/nowhere/at/all/x.times"], "--output /nowhere/at/all/x.times: expected a file in an existing folder"),
        (["-o", "x.json"], "--output x.json: expected a file in an existing folder whose name ends in .times"),
        (["--trace", "/nowhere/at/all/x.json"], "/nowhere/at/all/x.json: this file cannot be written"),
    ],
)
def test_bad_options(
    options: list[str], fault: str, gpu_python: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(gpu_python, *options) == 2
    assert fault in capfd.readouterr().err
    assert calls(tmp_path) == []


def test_a_script_that_does_not_exist(gpu_python: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["profile", "--python", str(gpu_python), "nonesuch.py"]) == 2
    assert "script not found: nonesuch.py" in capfd.readouterr().err


# ---- times of a trace ------------------------------------------------------------------------------------------------


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": trace_events([2.0, 2.0, 2.3])}))
    return path


def test_stand_ins_are_not_the_script_s_work(trace: Path) -> None:
    times = times_in(profiles.load_gpu("h200"), trace, [], 0)
    assert (times.kernels, times.gpu_us, times.not_covered) == (3, pytest.approx(6.3), 0.0)
    assert times.repeated == pytest.approx(4.0 / 6.3)
    assert times.sampled_clock is None


def test_the_sampled_clock_is_told_and_changes_no_time(trace: Path) -> None:
    gpu = profiles.load_gpu("h200")
    full, low, few = (times_in(gpu, trace, [mhz] * n, 1980) for mhz, n in ((1980, 5), (990, 5), (990, 2)))
    assert (full.sampled_clock, low.sampled_clock, few.sampled_clock) == (1.0, 0.5, None)
    assert full.measured == low.measured == few.measured


def test_work_beside_other_streams_is_not_covered(tmp_path: Path) -> None:
    events = [kernel("one", 100, 10.0, 1), kernel("other", 106, 8.0, 2, stream=9)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    times = times_in(profiles.load_gpu("h200"), path, [], 0)
    assert (times.measured, times.not_covered) == ([], 1.0)
