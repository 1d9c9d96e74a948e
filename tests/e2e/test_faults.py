"""Faults change what a run finds, and a replay with the same faults finds the same."""

from __future__ import annotations

import pickle
import re
from itertools import pairwise
from pathlib import Path

import pytest

from .conftest import Run
from .test_loading import times
from .test_replay import replay

pytestmark = pytest.mark.torch


def test_a_run_and_a_replay_with_the_same_faults(run: Run, shared_run: Run, tmp_path: Path) -> None:
    recorded = shared_run("ddp_amp.py")
    assert recorded.exit_code == 0, recorded.output
    half_ns = recorded.simulated["virtual_ns"] // 2
    faults = (
        f"gpu 1 at 0.01x from {half_ns}ns",
        "host 0 jitter 5% seed 7",
        f"link node000/gpu0 at 0.5x from {half_ns}ns",
    )
    options = tuple(word for fault in faults for word in ("--fault", fault))
    ran = run("ddp_amp.py", options=options)
    assert ran.exit_code == 0, ran.output
    assert "with faults: host 0 jitter 5% seed 7, gpu 1 at 0.01x from " in ran.output
    found = replay(recorded, tmp_path, *options)
    assert found["without_faults"]["median_ns"] == recorded.simulated["step"]["median_ns"]
    # PyTorch asks which work is complete, to let go of memory: beside a slow GPU it asks some times more or less than
    # it was recorded. Each answer is at a whole nanosecond, to which a jittery host's time is rounded.
    assert found["step"]["each_ns"] == pytest.approx(ran.simulated["step"]["each_ns"], rel=0, abs=3)
    assert ran.simulated["ranks"][1]["compute_ns"] > 10 * recorded.simulated["ranks"][1]["compute_ns"]
    assert ran.simulated["step"]["max_ns"] > 2 * recorded.simulated["step"]["max_ns"]


def test_a_dead_gpu_is_an_error_of_cuda_at_its_rank(run: Run) -> None:
    done = run("deaths.py", options=("--fault", "gpu 1 dead at 100ms"))
    assert done.exit_code == 1
    failed = re.search(r"FAILS at (\S+) AcceleratorError CUDA error: unknown error", done.log(1))
    assert failed is not None, done.log(1)
    began = re.search(r"BEGINS at (\S+)", done.log(1))
    assert began is not None
    assert float(began[1]) + float(failed[1]) == pytest.approx(0.1, abs=1e-5), "at once"
    assert done.log(0).count("STEP") == done.log(1).count("STEP") > 0, "nobody goes on without it"
    assert "rank 1 (server 0) ended with exit code 1: torch.AcceleratorError: CUDA error: unknown error" in done.output
    assert "faults until then: gpu 1 dead at 100ms" in done.output


def test_watchdogs_end_ranks_that_wait_for_something_dead(run: Run) -> None:
    done = run("deaths.py", options=("--fault", "nic node000/gpu1 dead at 100ms"))
    assert done.exit_code == 134, done.output
    lasted = [re.search(r"(?:timed out after|ran for) (\d+) m", done.log(rank)) for rank in (0, 1)]
    times_ms = [int(found[1]) for found in lasted if found is not None]
    assert len(times_ms) == 2, done.log(0)
    # PyTorch's watchdogs look every 100 ms; those of newer versions every second.
    assert all(60_000 <= lasted_ms < 61_100 for lasted_ms in times_ms)
    ended = re.search(r"NCCL's watchdogs ended ranks 0-1, the first at (\S+) s of virtual time", done.output)
    assert ended is not None, done.output
    began_s = float(ended[1]) - min(times_ms) / 1e3
    steps = done.log(0).count("STEP")
    assert 0 < steps < 8
    assert began_s <= 0.13, "the collective had begun when its link died, or was the next"
    assert "faults until then: nic node000/gpu1 dead at 100ms" in done.output
    for rank in (0, 1):
        recorded = pickle.loads((done.run_dir / f"nccl_trace_rank_{rank}").read_bytes())
        assert recorded["pg_config"]["0"]["ranks"] == "[0, 1]"
        assert [entry["state"] for entry in recorded["entries"]] == ["completed"] * steps + ["scheduled"]
        assert all("all_reduce" in entry["profiling_name"] for entry in recorded["entries"])


def test_a_slow_loader(run: Run) -> None:
    done = run("loading.py", "0", "0", n=1, options=("--fault", "loader 0 +50ms every 4 batches"))
    assert done.exit_code == 0, done.output
    found = times(done)
    for name in ("alone", "mapped", "streamed"):
        gaps = [after - before for before, after in pairwise(found[name])]
        late = [gap for number, gap in enumerate(gaps, 2) if number % 4 == 0]
        assert sum(gaps) - sum(late) < 10, name
        if name == "alone":
            assert late == pytest.approx([50.5] * 3, abs=0.5)
    ahead = found["ahead"]  # the eighth batch is loaded while the program sleeps
    gaps = [after - before for before, after in pairwise(ahead)]
    assert (gaps[2], gaps[6], gaps[10]) == (pytest.approx(50, abs=1), pytest.approx(0, abs=1), pytest.approx(50, abs=2))


def test_a_wrong_fault_ends_the_command_before_anything_starts(run: Run) -> None:
    done = run("ddp_amp.py", options=("--fault", "gpu 2 at 0.7x"))
    assert (done.exit_code, done.report) == (2, {})
    assert "fault 'gpu 2 at 0.7x': there is no rank 2: the run has ranks 0 to 1" in done.output
