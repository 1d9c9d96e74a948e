"""Each feature of distributed PyTorch that users lean on, unmodified, end to end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .conftest import Finished, Run

pytestmark = pytest.mark.torch
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("script", "n", "args"),
    [
        pytest.param("objects.py", 3, (), marks=pytest.mark.versions),
        pytest.param("pipeline.py", 2, (), marks=pytest.mark.versions),
        pytest.param("pipeline.py", 4, ("--schedule", "gpipe"), marks=pytest.mark.thorough),
        pytest.param("pipeline.py", 2, ("--schedule", "interleaved"), marks=pytest.mark.thorough),
        ("first_messages.py", 4, ()),
        ("tensor_parallel.py", 4, ()),
        pytest.param("fsdp_hybrid.py", 4, (), marks=pytest.mark.versions),
        pytest.param("ddp_amp.py", 2, (), marks=pytest.mark.versions),
    ],
)
def test_script_passes(shared_run: Run, script: str, n: int, args: tuple[str, ...]) -> None:
    done = shared_run(script, *args, n=n)
    assert done.exit_code == 0, done.output
    assert "PASSED" in done.output
    assert done.simulated["world_size"] == n
    assert done.report["simulator"]["passed_over"] == 0, "all that ranks wait for here is told in records"


@pytest.mark.versions
def test_checkpoints_round_trip(run: Run, tmp_path: Path) -> None:
    done = run("checkpointing.py", str(tmp_path), n=2)
    assert done.exit_code == 0, done.output
    assert "PASSED" in done.output
    texts = [warning["text"] for warning in done.simulated["warnings"]]
    assert not [text for text in texts if "uint8" in text or "bool" in text]  # the parts of a saved file, a check


@pytest.mark.versions
def test_example_reports_the_step_it_prints(run: Run) -> None:
    done = run(EXAMPLES / "train.py", "--model", "debug", "--seq-len", "512", "--steps", "4", n=2)
    assert done.exit_code == 0, done.output
    lines = [line for line in done.output.splitlines() if line.startswith("step ")]
    assert len(lines) == 4, done.output
    printed_ms = float(lines[-1].split(" ms")[0].split()[-1])
    reported_ms = done.simulated["step"]["median_ns"] / 1e6
    assert printed_ms == pytest.approx(reported_ms, rel=0.10), done.output


def test_what_a_rank_does_before_a_barrier_is_done_after_it(run: Run, tmp_path: Path) -> None:
    done = run("files_and_barriers.py", str(tmp_path), n=2)
    assert done.exit_code == 0, done.output
    assert all("PASSED" in done.log(rank) for rank in range(2))


@pytest.mark.versions
def test_replayed_graphs_are_steps(shared_run: Run) -> None:
    check_replayed_steps(shared_run("cuda_graph.py", n=1))


def test_a_graph_of_whole_steps_computes_at_each_launch(run: Run) -> None:
    done = run("whole_graph.py", n=1)
    assert "PASSED" in done.output
    check_replayed_steps(done)


def check_replayed_steps(done: Finished) -> None:
    assert done.exit_code == 0, done.output
    printed_us = [float(line.split()[1]) for line in done.output.splitlines() if line.startswith("replayed ")]
    step = done.simulated["step"]
    assert step["source"].startswith("optimizer markers"), done.output
    assert len(step["each_ns"]) >= 8, done.output
    assert step["median_ns"] / 1e3 == pytest.approx(printed_us[-1], rel=0.10), done.output


@pytest.mark.versions
@pytest.mark.skipif(not shutil.which("cc") and not shutil.which("gcc"), reason="Triton needs a C compiler")
def test_one_rank_compiles_for_all_ranks_and_later_runs(run: Run, tmp_path: Path) -> None:
    """And no step's time depends on what was compiled before, the first one's neither."""
    cache = ("--compile-cache", str(tmp_path / "cache"))
    first, second = (run("compiled.py", n=2, options=cache) for _ in range(2))
    for done in (first, second):
        assert done.exit_code == 0, done.output
        assert "PASSED" in done.output
    assert sum(_compiled_graphs(first)) == 3, "the model has three graphs, and one rank compiles each"
    assert sum(_compiled_graphs(second)) == 0
    found = [_said(second.log(rank), "found ", " graphs") for rank in range(2)]
    assert found == ["3 and 6"] * 2, "every rank finds all graphs, and of each the forward and the backward pass"
    taken = [_said(done.log(rank), "passes took [", "]") for done in (first, second) for rank in range(2)]
    firsts, others = zip(*(each.split(", ", 1) for each in taken), strict=True)
    assert len(set(others)) == 1, taken
    assert [int(each) for each in firsts] == pytest.approx(
        [int(firsts[-1])] * 4, rel=0.005
    )  # 2.11: by 0.3 %; 2.15: equal
    assert first.simulated["step"]["median_ns"] == second.simulated["step"]["median_ns"]


@pytest.mark.skipif(not shutil.which("cc") and not shutil.which("gcc"), reason="Triton needs a C compiler")
def test_graphs_that_a_program_stores_are_for_the_own_gpu_in_this_run_and_the_next(run: Run, tmp_path: Path) -> None:
    """As on a cluster, although one rank compiles for both."""
    for what in ("stored", "loaded"):
        done = run("stored_graphs.py", str(tmp_path), n=2)
        assert done.exit_code == 0, done.output
        for rank in range(2):
            said = f"{what}\nresult on cuda:{rank} kernels on {{{rank}}} file names {{{rank}}}\n"
            assert said in done.log(rank), done.log(rank)


def _compiled_graphs(done: Finished) -> list[int]:
    """Returns the number of compiled graphs of each rank."""
    return [int(_said(done.log(rank), "compiled ", " ")) for rank in range(2)]


def _said(log: str, before: str, after: str) -> str:
    return log.split(before)[1].split(after)[0]


@pytest.mark.versions
def test_profiler_of_the_script_works(run: Run, tmp_path: Path) -> None:
    done = run("profiled.py", str(tmp_path / "trace.json"), str(tmp_path / "memory.pickle"), n=1)
    assert done.exit_code == 0, done.output
    assert "PASSED" in done.output
    assert done.simulated["ranks"][0]["steps"] == 12
    assert "aten::addmm" in {
        signature["signature"].split(";")[-2] for signature in done.simulated["kernels"]["signatures"]
    }


def test_out_of_memory_is_pytorch_s_own(run: Run) -> None:
    done = run("out_of_memory.py", n=1, options=("--gpu", "a100-80g", "--cluster", "dgx-a100"))
    assert "blocks: CUDA out of memory" in done.output
    assert "torch.OutOfMemoryError: CUDA out of memory" in done.output
    assert done.exit_code == 1


def test_a_rack_joined_by_nvlink(run: Run) -> None:
    done = run("gpu_properties.py", n=8, options=("--cluster", "gb200-nvl72"))
    assert done.exit_code == 0, done.output
    assert "NVIDIA GB200, 10.0, 152 SMs, 197901355581 bytes" in done.output
    assert "L2 132644864, 232448 per block, fp8 True" in done.output
    assert "4 GPUs, bf16 True" in done.output
    assert "8 x gb200 on 2 servers (gb200-nvl72)" in done.output


@pytest.mark.thorough
@pytest.mark.skipif(not shutil.which("cc") and not shutil.which("gcc"), reason="Triton needs a C compiler")
@pytest.mark.parametrize("how", [[], ["compiled"]], ids=["eager", "compiled"])
def test_a_mask_s_counts_of_blocks_price_flex_attention(run: Run, how: list[str]) -> None:
    """64 rows of blocks of 128: one, then two on the window's edges, and none to three between them."""
    done = run("block_mask.py", *how, n=1)
    assert "PASSED" in done.output
    kernels = [one for one in done.simulated["kernels"]["signatures"] if "flex_attention" in one["signature"]]
    assert [one["source"] for one in kernels] == ["roofline"]
    counts = [given for given in kernels[0]["signature"].split(";")[5].split(",") if "x" in given]
    assert counts == ["1x4+2x60", "0x1+1x1+2x1+3x61"]
