"""Signatures measured through a stand-in for the process that uses the GPU: choice of calls, times, tables on disk."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phantora_async import cli
from phantora_async.errors import EnvironmentUnusable, UsageError
from phantora_async.gpu_profile import bench
from phantora_async.gpu_profile.bench import GpuBench, about
from phantora_async.gpu_profile.missing import read_report
from phantora_async.gpu_profile.on_demand import OnDemand
from phantora_async.gpu_profile.saving import GrowingTable
from phantora_async.gpu_profile.signatures import NotMeasured, SignatureBench
from phantora_async.gpu_profile.sweep import FAMILIES, pieces
from phantora_async.gpu_profile.sweeping import Sweep
from profiles import CostModel, Measured, Source, load_gpu, load_table
from profiles.signature import parse
from profiles.timings.keys import key_of

NAME = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, std::array<char*, 3ul> >(int)"
KERNEL = f"kernel;{NAME};8,1,1;128,1,1;0;aten::add;[[8192], [8192], []]"
GEMM = "gemm;cublasGemmEx;n;n;64;64;64;1;bf16;bf16;bf16;f32;default;aten::mm;"
MEMSET = "memset;4096"
TRITON = "triton;k;1,1,1;32,1,1;0;-;program;;"


def launch(name: str, us: float, grid: tuple[int, int, int] = (8, 1, 1), cat: str = "kernel") -> dict[str, Any]:
    return {"cat": cat, "name": name, "ts": 0.0, "us": us, "grid": list(grid), "block": [128, 1, 1]}


class FakeBench:
    """A GPU on which every execution takes `us`, and beside another kernel twice as long."""

    def __init__(self, us: float = 10.0, gpu: str = "NVIDIA H200", launched_by: int = 14) -> None:
        self.us, self.gpu, self.launched_by = us, gpu, launched_by
        self.asked: list[dict[str, Any]] = []
        self.broken_by = ""
        self.fatal = -1
        """A candidate that breaks the process."""

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        request = json.loads(json.dumps(request))
        self.asked.append(request)
        if request["do"] == "about":
            return {"about": {"gpu": self.gpu, "torch": "2.11"}} if self.gpu else {"error": "PyTorch sees no GPU"}
        if request["do"] == "find":
            first, count = request["from"], min(request["count"], 30 - request["from"])
            if first <= self.fatal < first + count:
                return {"error": "AcceleratorError: CUDA error: an illegal memory access was encountered"}
            return {"tried": [self._tried(first + at) for at in range(count)], "more": first + count < 30}
        if request["do"] == "try":
            return {"events": [], "errors": {"0": "RuntimeError: not here"}}
        if self.broken_by and any(self.broken_by in str(work) for work in request["works"]):
            return {"error": "the process that executes it ended"}
        return {"times": [self._times(work, request["states"]) for work in request["works"]]}

    def _tried(self, number: int) -> dict[str, Any]:
        grid = (8, 1, 1) if number == self.launched_by else (4, 1, 1)
        return {"call": {"number": number}, "kernels": [launch(NAME.replace("(int)", "(int, float)"), 1.0, grid)]}

    def _times(self, work: dict[str, Any], states: list[str]) -> dict[str, Any]:
        kind = work.get("kind", "kernel")
        us = {"kernel": NAME, "memset": "Memset", "gemm": "nvjet"}.get(kind, kind)
        cat = {"memset": "gpu_memset", "copy": "gpu_memcpy"}.get(kind, "kernel")
        parts = [us, "splitK"] if kind == "gemm" else [us]
        return {
            state: [[launch(name, self.us * (2 if state == "beside" else 1), cat=cat) for name in parts]] * 10
            for state in states
        }

    def count(self, what: str) -> int:
        return sum(request["do"] == what for request in self.asked)


def measured(bench: FakeBench, *signatures: str) -> dict[str, Measured | NotMeasured]:
    return dict(SignatureBench(bench).measure(signatures))


def test_a_kernel_is_measured_with_the_call_that_launches_its_grid() -> None:
    bench = FakeBench()
    found = measured(bench, KERNEL)[KERNEL]
    assert found == Measured(KERNEL, 10_000, 20_000, 10, 0)
    (timed,) = (request for request in bench.asked if request["do"] == "time")
    assert timed["works"] == [{"call": {"number": 14}}]


def test_the_same_candidate_is_tried_first_for_other_sizes() -> None:
    bench = FakeBench()
    measured(bench, KERNEL, KERNEL.replace("8192", "8000"))
    assert [(request["from"], request["count"]) for request in bench.asked if request["do"] == "find"] == [
        (0, 12),
        (12, 12),
        (14, 1),
    ]


def test_what_no_candidate_launches_is_not_measured() -> None:
    found = measured(FakeBench(launched_by=99), KERNEL, TRITON)
    assert found[KERNEL] == NotMeasured("none of 30 calls of aten::add launches it")
    assert isinstance(found[TRITON], NotMeasured)
    assert isinstance(
        measured(FakeBench(), KERNEL.replace("aten::add", ""))[KERNEL.replace("aten::add", "")], NotMeasured
    )


@pytest.mark.parametrize("fatal", [0, 13, 20])
def test_a_candidate_that_breaks_the_process_costs_only_itself(fatal: int) -> None:
    bench = FakeBench(launched_by=29)
    bench.fatal = fatal
    assert measured(bench, KERNEL)[KERNEL] == Measured(KERNEL, 10_000, 20_000, 10, 0)
    bench.launched_by = fatal
    assert isinstance(measured(bench, KERNEL)[KERNEL], NotMeasured)


def test_no_call_stands_for_operands_that_are_laid_out_otherwise() -> None:
    """A call of the same sizes would launch the same kernel on dense operands, in a third of the time."""
    strided = f"strided{KERNEL.removeprefix('kernel')};8192x8192;2x16384,16384x2"
    bench = FakeBench()
    assert isinstance(measured(bench, strided)[strided], NotMeasured)


def test_kernels_of_one_library_call_are_one_time_with_the_gaps_between_them() -> None:
    found = measured(FakeBench(), GEMM, MEMSET)
    gap_ns = load_gpu("h200").achieved.launch_gap_ns
    assert found[GEMM] == Measured(GEMM, 20_000 + gap_ns, 40_000 + gap_ns, 10, 0)
    assert found[MEMSET] == Measured(MEMSET, 10_000, 20_000, 10, 0)


def test_work_that_ends_the_process_costs_only_itself() -> None:
    bench = FakeBench()
    bench.broken_by = "4096"
    found = measured(bench, GEMM, MEMSET, "memset;64")
    assert isinstance(found[MEMSET], NotMeasured)
    assert isinstance(found[GEMM], Measured)
    assert isinstance(found["memset;64"], Measured)


def test_without_a_gpu_the_command_ends_with_69(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(GpuBench, "ask", lambda *_: {"error": "PyTorch sees no GPU"})
    monkeypatch.setattr("phantora_async.commands.profiling.sweep.find_python", lambda _: Path(sys.executable))
    assert cli.run(["profile", "--sweep", "-o", str(tmp_path / "a.times")]) == 69
    assert "PyTorch sees no GPU" in capsys.readouterr().err


def test_a_process_that_cannot_start_is_reported() -> None:
    bench = GpuBench(Path("/bin/false"))
    with pytest.raises(EnvironmentUnusable):
        about(bench)
    bench.close()


STANDS_STILL = """#!{python}
import json, os, signal, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if request.get("interrupts"):
        os.kill(os.getppid(), signal.SIGTERM)
    if request["do"] == "time":
        time.sleep(1000)
    print(json.dumps({{"about": {{"gpu": "one"}}, "echo": request}}), flush=True)
"""


@pytest.fixture
def stubborn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuBench]:
    """Its process answers everything but {"do": "time"}."""
    interpreter = tmp_path / "python"
    interpreter.write_text(STANDS_STILL.format(python=sys.executable))
    interpreter.chmod(0o700)
    monkeypatch.setattr(bench, "ANSWER_LIMIT_S", 0.3)
    started = GpuBench(interpreter)
    assert started.ask({"do": "about"})["about"]
    yield started
    started.close()


def test_work_that_does_not_end_is_given_up_and_after_three_times_all_of_it(stubborn: GpuBench) -> None:
    for _ in range(bench.MOST_LATE - 1):
        assert bench.is_late(stubborn.ask({"do": "time"})["error"])
        assert stubborn.ask({"do": "find"})["echo"] == {"do": "find"}  # of a new process, which has more time
    assert bench.is_late(stubborn.ask({"do": "time"})["error"])
    assert "nothing more is measured" in stubborn.ask({"do": "find"})["error"]


def test_an_interrupt_ends_the_wait_for_an_answer(stubborn: GpuBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ANSWER_LIMIT_S", 1e6)
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        assert stubborn.ask({"do": "time", "interrupts": True}) == {"error": bench.INTERRUPTED}
        assert came == [signal.SIGTERM]
        assert stubborn.ask({"do": "find"}) == {"error": bench.INTERRUPTED}
    finally:
        signal.signal(signal.SIGTERM, before)


def test_requests_and_answers_longer_than_a_pipe(stubborn: GpuBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ANSWER_LIMIT_S", 30.0)
    long = {"do": "find", "sizes": ["x" * 1_000_000]}
    assert stubborn.ask(long)["echo"] == long


# ---- the sweep ---


def test_the_grid_has_every_family_and_their_turns_are_fair() -> None:
    grid = list(pieces())
    assert {piece.family for piece in grid} == set(FAMILIES)
    assert {piece.family for piece in grid[: len(FAMILIES)]} == set(FAMILIES)
    signatures = [piece.signature for piece in grid if piece.signature]
    assert len({key_of(parse(one)) for one in signatures}) == len(signatures)


def test_a_sweep_that_was_interrupted_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "h200.times.gz"
    bench = FakeBench()
    grid = list(pieces(("copy",)))[:30]
    growing = GrowingTable(file, {"gpu": "NVIDIA H200"}, "test")
    for _, times, _ in Sweep(bench, SignatureBench(bench)).measure(grid, growing.table.times):
        growing.add(times)
        break
    growing.save()
    assert len(load_table(file).times) == 12
    again = GrowingTable(file, {"gpu": "NVIDIA H200"}, "test")
    before = bench.count("time")
    for _, times, _ in Sweep(bench, SignatureBench(bench)).measure(grid, again.table.times):
        again.add(times)
    again.save()
    timed = [work for request in bench.asked if request["do"] == "time" for work in request["works"]]
    assert len(timed) == len(grid)
    assert bench.count("time") > before
    assert len(load_table(file).times) == 30
    assert [origin["command"] for origin in load_table(file).origins] == ["test", "test"]


def test_operators_that_fail_are_named() -> None:
    bench = FakeBench()
    ((_, times, reasons),) = Sweep(bench, SignatureBench(bench)).measure(list(pieces(("softmax",)))[:2], ())
    assert times == []
    assert reasons == ["aten::_log_softmax: RuntimeError: not here"]


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.times").write_text("something else\n")
    for name in ("a.times", "a.txt", "no/such/folder/a.times"):
        with pytest.raises(UsageError):
            GrowingTable(tmp_path / name, {}, "test")


# ---- what a report lacks ---


def test_missing_signatures_are_those_without_a_measured_time_by_their_share(tmp_path: Path) -> None:
    listed = [
        {"signature": GEMM, "share": 0.25, "source": "roofline", "title": "gemm"},
        {"signature": GEMM + "[[64, 64]]", "share": 0.25, "source": "interpolated", "title": "the same gemm"},
        {"signature": MEMSET, "share": 0.1, "source": "measured", "title": "memset"},
        {"signature": KERNEL, "share": 0.4, "source": "roofline", "title": "kernel"},
    ]
    (tmp_path / "report.json").write_text(json.dumps({"simulated": {"kernels": {"signatures": listed}}}))
    assert list(read_report(tmp_path).missing().items()) == [(GEMM, 0.5), (KERNEL, 0.4)]
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(UsageError, match=r"report\.json of a run"):
        read_report(tmp_path)
    with pytest.raises(UsageError):
        read_report(tmp_path / "nothing")


# ---- while a run prices ---


def test_what_no_table_knows_is_measured_once_and_found_by_the_next_run(tmp_path: Path) -> None:
    bench = FakeBench()
    demand = OnDemand(bench, tmp_path / "kernel-times")
    model = CostModel(load_gpu("h200"), demand.times, measure=demand.measure)
    assert (model.cost(GEMM).source, model.cost(KERNEL).solo_ns) == (Source.MEASURED, 10_000)
    assert model.cost(KERNEL.replace("aten::add;", "aten::mul;")).source is Source.MEASURED
    assert model.cost(TRITON).source is not Source.MEASURED
    times = bench.count("time")
    model.cost(GEMM + "[[64, 64]]")
    assert bench.count("time") == times
    demand.save()
    later = FakeBench(us=99.0)
    known = OnDemand(later, tmp_path / "kernel-times")
    assert CostModel(load_gpu("h200"), known.times, measure=known.measure).cost(KERNEL).solo_ns == 10_000
    assert later.count("time") == 0


def test_two_runs_at_once_keep_both_their_times(tmp_path: Path) -> None:
    one, other = OnDemand(FakeBench(), tmp_path), OnDemand(FakeBench(), tmp_path)
    assert one.measure(GEMM)
    assert other.measure(MEMSET)
    one.save()
    other.save()
    assert set(load_table(one.file).times) == {key_of(parse(GEMM)), key_of(parse(MEMSET))}


def test_a_damaged_cache_counts_as_empty(tmp_path: Path) -> None:
    OnDemand(FakeBench(), tmp_path).file.write_text("phantora-kernel-times 2\nnonsense\n")
    demand = OnDemand(FakeBench(), tmp_path)
    assert demand.measure(GEMM)
    demand.save()
    assert len(load_table(demand.file).times) == 1


def test_times_of_another_gpu_are_carried_over(tmp_path: Path) -> None:
    demand = OnDemand(FakeBench(us=100.0, gpu=load_gpu("a100-80g").device_name), tmp_path)
    cost = CostModel(load_gpu("h200"), demand.times, measure=demand.measure).cost(KERNEL)
    assert cost.source is Source.INTERPOLATED
    assert cost.solo_ns < 100_000


def test_a_gpu_that_is_not_described_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnusable, match="there is no description"):
        OnDemand(FakeBench(gpu="GeForce 256"), tmp_path)
    with pytest.raises(EnvironmentUnusable, match="no GPU"):
        OnDemand(FakeBench(gpu=""), tmp_path)
