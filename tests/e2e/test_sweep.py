"""A sweep of a real job: two programs are run, other networks are replayed, and what is too large is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import RANKS_PYTHON, SCRIPTS, needs_torch

pytestmark = pytest.mark.torch

STUDY = f"""
tokens_per_step = "64 * world_size"
[run]
script = "{SCRIPTS / "sized.py"}"
python = "{RANKS_PYTHON}"
world_size = 2
cluster = "dgx-h100"
[grid]
"--width" = [256, 2048]
set_network = ["", "server.gpu_gbps=100"]
[[trial]]
"--fill-gib" = 90
"""


def test_a_sweep_of_a_real_job(tmp_path: Path) -> None:
    needs_torch()
    (tmp_path / "study.toml").write_text(STUDY)
    command = [sys.executable, "-m", "phantora_async", "sweep", "study.toml", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [(one["trial"], one["how"], one["state"]) for one in told["trials"]] == [
        ("width=256", "run", "done"),
        ("width=256 server.gpu_gbps=100", "replay", "done"),
        ("width=2048", "run", "done"),
        ("width=2048 server.gpu_gbps=100", "replay", "done"),
        ("fill-gib=90", "run", "out of memory"),
    ]
    step = {one["trial"]: one["figures"].get("step") for one in told["trials"]}
    assert step["width=2048 server.gpu_gbps=100"] > step["width=2048"]
    spent = told["trials"][2]["spent"]
    assert spent["million_tokens"]["money"][0] == pytest.approx(
        2.49 * 2 * step["width=2048"] / 3600 * 1e6 / 128, rel=1e-6
    )
    assert 0 < spent["step"]["kwh"] * 3.6e6 < 2 * 700 * step["width=2048"]
    assert told["best"]["time"]["trial"] == "width=256"
    again = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    assert json.loads(again.stdout) == told, "nothing is tried twice"
