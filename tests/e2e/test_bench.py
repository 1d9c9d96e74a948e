"""`phantora-async bench` with real runs of the smallest size."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil


def start(history: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "phantora_async", "bench", "--steps", "2", "--history", str(history), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_benchmark_measures_and_profiles_a_run(tmp_path: Path) -> None:
    history = tmp_path / "h.jsonl"
    bench = start(history, "--ranks", "2", "--profile")
    out, err = bench.communicate()
    assert bench.returncode == 0, err
    (entry,) = map(json.loads, history.read_text().splitlines())
    (point,) = entry["points"]
    assert entry["complete"] is True
    assert point["failure"] == ""
    assert point["simulated_step_ns"] > 0
    assert 0 < point["step_s"] < point["start_s"] < point["wall_s"]
    assert all(seconds >= 0 for seconds in point["cpu"].values())
    assert point["cpu"]["ranks"] > point["cpu"]["hook"] > 0
    assert point["records_per_s"] > 0
    assert "records_per_s" not in out
    assert out.partition("rank 0")[0].count(" calls  ") >= 5
    assert "(torch/" in out.partition("rank 0")[2]


def test_an_interrupt_ends_the_run_and_leaves_no_process(tmp_path: Path) -> None:
    history = tmp_path / "h.jsonl"
    bench = start(history, "--ranks", "1,16")  # many, so that the interrupt comes before they have ended
    assert bench.stdout is not None
    bench.stdout.readline()
    while bench.stdout.readline().split()[:1] != ["1"]:
        pass
    children = psutil.Process(bench.pid).children(recursive=True)
    os.kill(bench.pid, signal.SIGINT)
    bench.communicate()
    assert bench.returncode == 130
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    (entry,) = map(json.loads, history.read_text().splitlines())
    assert entry["complete"] is False
    assert [point["ranks"] for point in entry["points"]] == [1]
