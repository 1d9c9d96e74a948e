"""A recorded run executed again gives its report; on another host, the report of a run there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import Run

pytestmark = pytest.mark.torch


def replay(folder: Path, *options: str) -> dict[str, Any]:
    """The part `simulated` of its report."""
    report = folder / "replay.json"
    command = [sys.executable, "-m", "phantora_async", "replay", str(folder / "recorded"), "--report", str(report)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    simulated: dict[str, Any] = json.loads(report.read_text())["simulated"]
    return simulated


@pytest.mark.parametrize("script", ["tensor_parallel.py", "pipeline.py", "cuda_graph.py", "ddp_amp.py"])
def test_the_same_machine(run: Run, tmp_path: Path, script: str) -> None:
    ran = run(script, n=4, options=("--record", str(tmp_path / "recorded")))
    assert ran.exit_code == 0, ran.output
    assert replay(tmp_path) == ran.simulated


def test_another_host_and_network(run: Run, tmp_path: Path) -> None:
    recorded = run("ddp_amp.py", options=("--record", str(tmp_path / "recorded")))
    assert recorded.exit_code == 0, recorded.output
    options = ("--host", "none", "--gpu", "h100")
    ran = run("ddp_amp.py", options=options)
    assert ran.exit_code == 0, ran.output
    found = replay(tmp_path, *options)
    assert found["virtual_ns"] < recorded.simulated["virtual_ns"]
    assert found | {"logged": 0} == ran.simulated | {"logged": 0}
