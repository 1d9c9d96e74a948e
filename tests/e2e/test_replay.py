"""A recorded run executed again gives its report; on another host, the report of a run there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from emu.contract import records
from phantora_async.recording import load
from phantora_async.replaying.site_lines import line_of

from .conftest import SCRIPTS, Finished, Run

pytestmark = pytest.mark.torch


def replay(recorded: Finished | Path, folder: Path, *options: str) -> dict[str, Any]:
    """Replays a recording; returns the part `simulated` of its report."""
    report = folder / "replay.json"
    recording = recorded if isinstance(recorded, Path) else recorded.run_dir.with_name("recorded")
    command = [sys.executable, "-m", "phantora_async", "replay", str(recording), "--report", str(report)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    simulated: dict[str, Any] = json.loads(report.read_text())["simulated"]
    return simulated


@pytest.mark.parametrize(
    ("script", "args", "n"),
    [
        ("tensor_parallel.py", (), 4),
        ("pipeline.py", ("--schedule", "gpipe"), 4),
        ("cuda_graph.py", (), 1),
        ("ddp_amp.py", (), 4),
    ],
)
def test_the_same_machine(shared_run: Run, tmp_path: Path, script: str, args: tuple[str, ...], n: int) -> None:
    ran = shared_run(script, *args, n=n)
    assert ran.exit_code == 0, ran.output
    assert replay(ran, tmp_path) == ran.simulated


@pytest.mark.thorough
def test_questions_of_python_code_take_the_same_time_with_and_without_a_recording(run: Run, tmp_path: Path) -> None:
    """The script asks `Work.is_completed`, and an event loop does its own work between the questions. Its timers take
    the virtual time that it asked for, however busy this machine is.
    """
    recorded = run("polled_work.py", n=2, options=("--record", str(tmp_path / "recorded")))
    alone = run("polled_work.py", n=2)
    assert (recorded.exit_code, alone.exit_code) == (0, 0), recorded.output + alone.output
    assert alone.simulated == recorded.simulated


def test_loops_that_ask_end_when_the_work_is_complete(run: Run, shared_run: Run, tmp_path: Path) -> None:
    """A turn takes a microsecond: the script counts nearly as many as its event says. The same machine's replay is the
    run; on a slower GPU the loops, that of destroy_process_group included, end where they end in a run there.
    """
    script, slow = "asking_loops.py", ("--fault", "gpu 1 at 0.5x")
    ran, slower = shared_run(script, n=2), run(script, n=2, options=slow)
    assert (ran.exit_code, slower.exit_code) == (0, 0), ran.output + slower.output
    for finished in (ran, slower):
        turns, lasts_us = map(int, re.search(r"rank 0 event: (\d+) turns, (\d+) us", finished.output).groups())  # type: ignore[union-attr]
        assert 0.5 * lasts_us < turns < lasts_us, "the host has launched the work before"
    assert replay(ran, tmp_path) == ran.simulated
    there = replay(ran, tmp_path, *slow)
    for figure in ("virtual_ns", "step", "activity"):
        assert there[figure] == slower.simulated[figure], figure


def test_a_folded_run_is_recorded_as_that_with_all_processes(run: Run, shared_run: Run, tmp_path: Path) -> None:
    """Ranks that share a timeline can be priced for another machine, and one of them alone be slow. With half as many
    replicas, a step takes what it takes in a run with as many, in which the data last for more steps: but for
    nanoseconds, since the slowest of two ranks has another host than that of four, and its work is rounded anew: what
    each Python function takes in a run, in a replay what those between two records take together.
    """
    whole, recording = shared_run("ddp_amp.py", n=4), tmp_path / "folded"
    options = ("--fold", "dp=4", "--fold-apart", "none", "--record", str(recording))
    folded = run("ddp_amp.py", n=4, options=options)
    assert folded.exit_code == 0, folded.output
    assert replay(recording, tmp_path) == whole.simulated
    for machine in (("--host", "none", "--gpu", "h100"), ("--slow-gpu", "3=0.5")):
        assert replay(recording, tmp_path, *machine) == replay(whole, tmp_path, *machine)
    narrower = shared_run("ddp_amp.py", n=2).simulated
    found = replay(recording, tmp_path, "--width", "dp=2")["step"]["each_ns"]
    assert found == pytest.approx(narrower["step"]["each_ns"][:1], rel=1e-4)


def test_ranks_that_exchange_messages_are_recorded_as_with_all_processes(
    run: Run, shared_run: Run, tmp_path: Path
) -> None:
    """A ring of two along a folded axis has one timeline. A replay gives each rank one again, also by a slow one."""
    ring, recording = ("sending_ring.py", "2", "together"), tmp_path / "folded"
    whole = shared_run(*ring, n=8)
    options = ("--fold", "dp*=4,cp*=2", "--fold-apart", "none", "--witnesses", "0", "--record", str(recording))
    folded = run(*ring, n=8, options=options)
    assert folded.exit_code == 0, folded.output
    assert "again with" not in folded.output
    assert folded.report["folding"]["processes"] == 1
    assert replay(recording, tmp_path) == folded.simulated == whole.simulated
    assert replay(recording, tmp_path, "--replicas", "each") == whole.simulated
    for machine in (("--host", "none", "--gpu", "h100"), ("--slow-gpu", "3=0.5"), ("--slow-gpu", "2=0.5")):
        assert replay(recording, tmp_path, *machine) == replay(whole, tmp_path, *machine)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("layout", "mesh", "width", "before_steps"),
    [
        ("hsdp", "dp_replicate={},dp_shard=4", "dp_replicate", True),
        ("ddp", "dp={},tp=4", "dp", False),
    ],
)
def test_more_replicas(run: Run, tmp_path: Path, layout: str, mesh: str, width: str, before_steps: bool) -> None:
    """The replay is as a run with so many. `before_steps`: also what comes before: DDP's constructor gathers from all
    ranks. The calls that a run counts over its ranks are not in a replay with others.
    """
    recording, options = tmp_path / "recording", ("--nproc-per-node", "8", "--fold")
    small = run("layouts.py", layout, "4", n=16, options=(*options, mesh.format(4), "--record", str(recording)))
    large = run("layouts.py", layout, "4", n=32, options=(*options, mesh.format(8)))
    assert (small.exit_code, large.exit_code) == (0, 0), small.output + large.output
    found = replay(recording, tmp_path, "--width", f"{width}=8")
    assert found["step"]["each_ns"] == large.simulated["step"]["each_ns"]
    assert "calls" not in found
    if before_steps:
        assert without_memory(found) == without_memory(large.simulated)
    assert replay(recording, tmp_path, "--width", f"{width}=8", "--replicas", "each") == found


def without_memory(simulated: dict[str, Any]) -> dict[str, Any]:
    """A simulation without calls and memory: a replay keeps what NCCL took of memory in groups as wide as before."""
    ranks = [{name: part for name, part in rank.items() if name != "memory"} for rank in simulated["ranks"]]
    left_out = ("calls", "memory", "ranks")
    return {name: part for name, part in simulated.items() if name not in left_out} | {"ranks": ranks}


@pytest.mark.thorough
def test_shards_that_follow_from_the_width_stop_a_replay(run: Run, tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    options = ("--nproc-per-node", "8", "--fold", "dp=4,tp=2", "--record", str(recording))
    assert run("layouts.py", "tensor", "2", n=8, options=options).exit_code == 0
    command = [sys.executable, "-m", "phantora_async", "replay", str(recording), "--width", "dp=8"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 78
    assert "for each rank along dp at" in done.stderr
    assert "layouts.py:" in done.stderr


def test_another_host_and_network(run: Run, shared_run: Run, tmp_path: Path) -> None:
    recorded = shared_run("ddp_amp.py")
    assert recorded.exit_code == 0, recorded.output
    options = ("--host", "none", "--gpu", "h100")
    ran = run("ddp_amp.py", options=options)
    assert ran.exit_code == 0, ran.output
    found = replay(recorded, tmp_path, *options)
    assert found["virtual_ns"] < recorded.simulated["virtual_ns"]
    assert found | {"logged": 0} == ran.simulated | {"logged": 0}


@pytest.mark.versions
def test_what_the_script_itself_reads_of_its_gpu_is_recorded(run: Run, tmp_path: Path) -> None:
    """With its lines; not what PyTorch and this emulation read for themselves."""
    recording, script = tmp_path / "recording", SCRIPTS / "reads_gpu.py"
    done = run("reads_gpu.py", n=1, options=("--record", str(recording)))
    assert done.exit_code == 0, done.output
    lines = {line.strip(): number for number, line in enumerate(script.read_text().splitlines(), 1)}
    made = load(recording)
    found = [
        (one.payload.rstrip(b"\0").decode(), int(line_of(made, 0, one.at_site).split(":")[1].split()[0]))
        for one in made.side(0)
        if one.kind == records.ATTRIBUTE_READ
    ]
    reads = {line: number for line, number in lines.items() if "get_device_" in line or "_supported" in line}
    bf16, name, capability, memory = reads.values()
    (nvml,) = (number for line, number in lines.items() if "nvmlDeviceGetName" in line)
    (driver,) = (number for line, number in lines.items() if "cuDeviceGetAttribute" in line)
    assert found == [
        ("bf16_supported", bf16),
        ("name", name),
        ("major", capability),
        ("minor", capability),
        ("total_memory", memory),
        ("name", nvml),
        ("attr.16", driver),
    ]
    assert replay(recording, tmp_path) == done.simulated
