"""The examples, each by its command of examples/README.md, and the notebook."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import RANKS_PYTHON, needs, needs_torch

pytestmark = [pytest.mark.torch, pytest.mark.thorough, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
COMMANDS = re.findall(r"^\|.*\| `(.*)` \|$", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
NEEDS = {
    "megatron_tp_pp.py": "megatron",
    "deepspeed_zero3.py": "deepspeed",
    "hf_trainer.py": "transformers",
    "rollout.py": "transformers",
    "detection.py": "torchvision",
    "ray_tune.py": "ray",
}


def shell(command: str, folder: Path) -> str:
    """Runs a command in a folder with a copy of the examples, in which `phantora-async` is that of this checkout."""
    needs_torch()
    shutil.copytree(EXAMPLES, folder / "examples")
    program = folder / "phantora-async"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m phantora_async "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:{Path(RANKS_PYTHON).parent}:{os.environ['PATH']}", "COLUMNS": "160"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def reports(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in folder.glob("phantora-runs/*/report.json")]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_example_runs(command: str, tmp_path: Path) -> None:
    for script, module in NEEDS.items():
        if script in command:
            needs(module)
    printed = shell(command, tmp_path)
    for report in reports(tmp_path):
        simulated = report["simulated"]
        assert isinstance(simulated, dict)
        assert simulated["step"]["source"].startswith("optimizer"), simulated["step"]
        assert simulated["memory"]["verdict"]["fits"]
    assert printed


def test_every_script_has_a_command() -> None:
    text = (EXAMPLES / "README.md").read_text()
    shown = {path.name for path in EXAMPLES.iterdir() if path.is_file() and path.name != "README.md"}
    assert {name for name in shown if name not in text} == set()


def test_the_notebook_runs(tmp_path: Path) -> None:
    """Its cells, one after the other, in one Python."""
    for module in ("pandas", "matplotlib"):
        pytest.importorskip(module)
    cells = json.loads((EXAMPLES / "compare_gpus.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    (tmp_path / "cells.py").write_text(f"import matplotlib\nmatplotlib.use('agg')\n{code}\n")
    printed = shell(f'cd examples && "{sys.executable}" ../cells.py', tmp_path)
    assert "a step takes" in printed or "step" in printed
    assert "h100" in printed


def test_the_batch_script_runs_as_slurm_would_start_it(tmp_path: Path) -> None:
    told = {"SLURM_JOB_ID": "7", "RANKS": "2"}
    words = " ".join(f"{name}={value}" for name, value in told.items())
    shell(f"{words} bash examples/slurm.sh --model debug --seq-len 256 --steps 4", tmp_path)
    [report] = reports(tmp_path)
    assert (tmp_path / "phantora-runs" / "slurm-7" / "rank1.log").is_file()
    assert report["exit_code"] == 0
