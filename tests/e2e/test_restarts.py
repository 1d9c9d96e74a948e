"""Ranks that fail under a launcher: torchrun starts all of them again, others end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import SCRIPTS, Finished, Run, needs

pytestmark = pytest.mark.torch
SCRIPT = str(SCRIPTS / "restarts.py")
LAUNCHED = str(SCRIPTS / "launched.py")


def train(
    run: Run,
    folder: Path,
    *script: str,
    restarts: int = 2,
    options: tuple[str, ...] = (),
    gpus: int = 2,
    servers: int = 1,
    isolation: str = "auto",
    faults: tuple[str, ...] = (),
) -> Finished:
    """`script`: the rank that fails, how, in which step, how often."""
    folder.mkdir()
    command = ["--nproc-per-node", str(gpus), "--max-restarts", str(restarts), *options]
    faults = tuple(word for fault in faults for word in ("--fault", fault))
    run_options = ("--nproc-per-node", str(gpus), "--isolation", isolation, *faults, "--launcher", "--")
    return run(Path("torchrun"), *command, SCRIPT, *script, str(folder), n=gpus * servers, options=run_options)


def test_a_job_goes_on_once_its_gpu_is_well_again(run: Run, tmp_path: Path) -> None:
    done = train(run, tmp_path / "files", "9", "raises", "9", "0", faults=("gpu 1 dead at 110ms for 50ms",))
    assert done.exit_code == 0, done.output
    log = done.log(0)
    assert "torch.AcceleratorError: CUDA error: unknown error" in log
    (restart,) = done.simulated["restarts"]
    assert (restart["rank"], restart["exit_code"]) == (1, 1)
    assert starts(log, 0) == starts(log, 1)
    resumed = starts(log, 0)[-1][1]
    assert 0 < resumed < 6, "from a checkpoint"
    assert steps_done(log, 0) == [*range(resumed), *range(resumed, 6)]


def starts(log: str, rank: int) -> list[tuple[int, int]]:
    """Returns (restart count, first step) of each start of the rank."""
    return [
        (int(a), int(b)) for a, b in re.findall(rf"START rank {rank} attempt \d+ count (\d+) of \d+ from (\d+)", log)
    ]


def steps_done(log: str, rank: int) -> list[int]:
    return [int(step) for step in re.findall(rf"STEP (\d+) rank {rank} ", log)]


def failure_ns(log: str) -> int:
    began, failed = (float(re.search(rf"{word}.* at (\d+\.\d+)", log)[1]) for word in ("START", "FAILS"))  # type: ignore[index]
    return round((failed - began) * 1e9)


THOROUGH = (pytest.param(*one, marks=pytest.mark.thorough) for one in (("raises", 1), ("exits", 7)))
"""Other tests here restart ranks that end so."""


@pytest.mark.parametrize(("how", "code"), [("killed", 137), *THOROUGH])
def test_torchrun_starts_all_ranks_again(run: Run, tmp_path: Path, how: str, code: int) -> None:
    done = train(run, tmp_path / "files", "1", how, "3", "1")
    assert done.exit_code == 0, done.output
    log = done.log(0)
    # Rank 0 goes on until the agent ends it, and writes the checkpoint of the last step that rank 1 took part in.
    assert starts(log, 0) == starts(log, 1) == [(0, 0), (1, 3)]
    assert steps_done(log, 0) == [0, 1, 2, 3, 4, 5]
    (restart,) = done.simulated["restarts"]
    assert (restart["rank"], restart["exit_code"]) == (1, code)
    assert restart["at_ns"] > failure_ns(log) + 100_000_000, "torchrun's monitor interval"
    assert f"restart: rank 1 ended with exit code {code}" in done.output
    assert done.simulated["step"]["source"] == "optimizer markers on rank 0"
    assert done.simulated["ranks"][0]["steps"] == 6
    peaks = [int(peak) for peak in re.findall(r"peak (\d+)", log)]
    assert max(peaks) < done.simulated["memory"]["capacity_nbytes"] / 100
    allocated = re.findall(r"STEP 3 rank 1 .* allocated (\d+)", log)
    assert allocated == re.findall(r"STEP 0 rank 1 .* allocated (\d+)", log)[:1], (
        "the memory of the first process is free"
    )
    if how == "killed":
        again = train(run, tmp_path / "again", "1", how, "3", "1")
        for part in ("restarts", "virtual_ns", "step"):
            assert again.simulated[part] == done.simulated[part], "it is the same in every run"


def test_the_monitor_interval_counts(run: Run, tmp_path: Path) -> None:
    done = train(run, tmp_path / "files", "0", "exits", "1", "1", options=("--monitor-interval=0.5",))
    assert done.exit_code == 0, done.output
    assert 500_000_000 < done.simulated["restarts"][0]["at_ns"] - failure_ns(done.log(0)) < 600_000_000


def test_when_no_restart_is_left_the_run_fails(run: Run, tmp_path: Path) -> None:
    done = train(run, tmp_path / "files", "1", "exits", "1", "9", restarts=1)
    assert done.exit_code == 7, done.output
    assert "rank 1 (server 0) ended with exit code 7" in done.output
    assert done.report["failure"]["kind"] == "rank_died"
    assert [restart["rank"] for restart in done.simulated["restarts"]] == [1]


def test_two_servers_that_meet_by_c10d(run: Run, tmp_path: Path) -> None:
    rendezvous = ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "$MASTER_ADDR:$MASTER_PORT")
    done = train(run, tmp_path / "files", "3", "raises", "3", "1", options=rendezvous, servers=2)
    assert done.exit_code == 0, done.output
    assert starts(done.log(0), 0)[-1][1] == 3
    assert steps_done(done.log(0) + done.log(2), 3)[-1] == 5
    assert len(done.simulated["restarts"]) == 1
    assert done.simulated["ranks"][0]["steps"] == 6


def test_a_launcher_of_ones_own(run: Run, tmp_path: Path) -> None:
    """A script that starts its processes again, as often as it takes."""
    script = tmp_path / "supervisor.py"
    script.write_text(
        "import os, subprocess, sys\n"
        "for attempt in range(3):\n"
        "    names = 'WORLD_SIZE', 'TORCHELASTIC_RESTART_COUNT', 'TORCHELASTIC_MAX_RESTARTS'\n"
        "    variables = dict(zip(names, ('2', str(attempt), '2')))\n"
        "    ranks = [subprocess.Popen([sys.executable, *sys.argv[1:]],\n"
        "             env=os.environ | variables | {'RANK': str(n), 'LOCAL_RANK': str(n)}) for n in range(2)]\n"
        "    if ranks[1].wait() == 0:\n"
        "        sys.exit(ranks[0].wait())\n"
        "    ranks[0].terminate()\n"
        "    ranks[0].wait()\n"
        "sys.exit(1)\n"
    )
    folder = tmp_path / "files"
    folder.mkdir()
    command = (str(script), SCRIPT, "1", "raises", "2", "2", str(folder))
    done = run(Path("python"), *command, n=2, options=("--nproc-per-node", "2", "--launcher", "--"))
    assert done.exit_code == 0, done.output
    assert len(done.simulated["restarts"]) == 2
    assert starts(done.log(0), 1) == [(0, 0), (1, 2), (2, 2)]


def test_deepspeed_ends_the_others(run: Run) -> None:
    needs("deepspeed")
    options = ("--nproc-per-node", "2", "--launcher", "--")
    done = run(Path("deepspeed"), "--num_gpus", "2", LAUNCHED, "ranks", "fails", n=2, options=options)
    assert done.exit_code == 1, done.output
    assert "rank 1 (server 0) ended with exit code 1: ValueError: no such luck" in done.output


@pytest.mark.thorough  # accelerate starts torchrun
def test_accelerate_ends_the_others(run: Run) -> None:
    needs("accelerate")
    command = ["launch", "--multi_gpu", "--num_processes", "2", "--mixed_precision", "no", "--dynamo_backend", "no"]
    options = ("--nproc-per-node", "2", "--launcher", "--")
    done = run(Path("accelerate"), *command, LAUNCHED, "ranks", "fails", n=2, options=options)
    assert done.exit_code == 1, done.output
    assert "rank 1 (server 0) ended with exit code 1: ValueError: no such luck" in done.output
