"""A sweep that is killed with SIGKILL goes on: no result is lost, and no trial that has one is run again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import Runs

PROGRAM = """
import json, os, signal, sys
from pathlib import Path
from phantora_async.api import running
from phantora_async.api.results import Run
from phantora_async.errors import OverBudget
from phantora_async.study.sweeping import sweep
from tests.unit.study.conftest import made

study, deadly = json.loads(sys.argv[1]), int(sys.argv[2])

def run(options, environment, processes):
    with open("begun", "a") as begun:
        begun.write(" ".join(options.arguments) + "\\n")
    if len(Path("begun").read_text().splitlines()) == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    simulated = made(options)
    batch = int(options.arguments[1])
    step_ns = simulated["step"]["median_ns"] = 10**8 * (20 + (batch - 40) ** 2)
    if options.max_step_time and step_ns > float(options.max_step_time[:-2]):
        error = OverBudget("over budget")
        over = {"figure": "step", "step": 2, "at_least_ns": step_ns}
        error.run = Run({"simulated": simulated, "stopped": {"text": "", "over_budget": over}}, Path("report.json"))
        raise error
    return Run({"simulated": simulated}, Path("report.json"))

running.run_with = run
print(json.dumps([[one.trial.name, one.unfit] for one in sweep(study, folder="kept").trials]))
"""
RUN = {"script": "train.py", "world_size": 2}
GRID = {"run": RUN, "grid": {"--batch": [1, 2, 3, 4, 5]}}
SEARCH = {
    "objectives": ["time"],
    "run": RUN,
    "search": {"trials": 12, "at_a_time": 3, "ranges": {"--batch": {"from": 1, "to": 64}}},
}
PRUNED = GRID | {"prune": True, "tokens_per_step": 1000, "objectives": ["time"], "grid": {"--batch": [9, 8, 7, 10, 6]}}


def run(study: dict[str, Any], folder: Path, deadly: int) -> subprocess.CompletedProcess[str]:
    """Runs a study. `deadly`: the number of the run in which the process is killed; 0: it is not."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(study), str(deadly)]
    environment = {"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)


@pytest.mark.parametrize("study", [GRID, SEARCH, PRUNED], ids=["grid", "search", "pruned"])
def test_a_killed_sweep_comes_to_the_same_trials(runs: Runs, tmp_path: Path, study: dict[str, Any]) -> None:
    if study is SEARCH:
        pytest.importorskip("optuna")
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    for folder in (killed, whole):
        folder.mkdir()
        (folder / "train.py").write_text("pass\n")
    at_once = run(study, whole, 0)
    assert at_once.returncode == 0, at_once.stderr
    assert at_once.stdout.count("pruned: step time at least") == (3 if study is PRUNED else 0)
    assert run(study, killed, 4).returncode == -signal.SIGKILL
    done = run(study, killed, 0)
    assert (done.returncode, done.stdout) == (0, at_once.stdout)
    order = (whole / "begun").read_text().splitlines()
    begun = (killed / "begun").read_text().splitlines()
    assert begun == [*order[:4], *order[3:]], "the one that was killed in its midst begins again"
