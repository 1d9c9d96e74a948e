"""Ctrl-C at any moment: the report is written, nothing is left, and it does not take long."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import RANKS_PYTHON, SCRIPTS, descendants_of, needs_torch

pytestmark = pytest.mark.torch
PEAKS = re.compile(r"^[01] .* 1\.00 GiB +1\.00 GiB$", re.MULTILINE)
"""A rank's line, with what was allocated and reserved."""
TRAINS_FOR_EVER = """\
import itertools, torch
from common import all_are_here, start
rank, _, device = start()
model = torch.nn.Linear(2048, 2048, device=device)
optimizer = torch.optim.AdamW(model.parameters())
for step in itertools.count():
    optimizer.zero_grad()
    model(torch.ones(4, 2048, device=device)).sum().backward()
    optimizer.step()
    torch.cuda.synchronize()
    if step == 5:
        all_are_here(device)
        print("STEPS", flush=True)
"""


BEFORE_THE_FIRST_STEP = """\
import itertools, torch
from common import all_are_here, start
rank, _, device = start()
kept = torch.empty(1 << 30, dtype=torch.uint8, device=device)
log = open(f"log{rank}", "w")
print("not flushed", file=log)
all_are_here(device)
print("STEPS", flush=True)
for _ in itertools.count():
    kept.zero_()
    torch.cuda.synchronize()
"""


@pytest.fixture
def command(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    needs_torch()
    (tmp_path / "tmp").mkdir()
    script, *options = getattr(request, "param", (TRAINS_FOR_EVER,))
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "slow.py").write_text(IS_IMPORTED)
    os.mkfifo(tmp_path / "imported")
    (tmp_path / "common.py").write_text((SCRIPTS / "common.py").read_text())
    line = [sys.executable, "-m", "phantora_async", "run", "-n", "2", "--python", RANKS_PYTHON, "--run-dir", "run"]
    process = subprocess.Popen(
        [*line, *options, "train.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(tmp_path)},
    )
    yield process
    if process.poll() is None or descendants_of(process.pid):
        os.killpg(process.pid, signal.SIGKILL)


def test_the_report_of_an_interrupted_run_has_the_memory_of_its_steps(
    command: subprocess.Popen[str], tmp_path: Path
) -> None:
    """Two interrupts at once, as `timeout` sends them to a process and to its group: the second one loses nothing."""
    assert command.stdout is not None
    for line in command.stdout:
        if "STEPS" in line:
            break
    for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
        command.send_signal(number)
    output, _ = command.communicate()
    assert command.returncode == 130, output
    assert "error: interrupted" in output
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["failure"]["kind"] == "interrupted"
    model_nbytes = 4 * (2048 * 2048 + 2048)
    for rank in report["simulated"]["ranks"]:
        # Parameters, gradients and two states of AdamW; what its step allocates besides is at most that much again.
        assert 4 * model_nbytes < rank["memory"]["allocated_peak_nbytes"] < 10 * model_nbytes
    assert descendants_of(command.pid) == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("command", [(BEFORE_THE_FIRST_STEP,)], indirect=True)
def test_an_interrupted_run_says_what_it_knows(command: subprocess.Popen[str], tmp_path: Path) -> None:
    """The summary is printed, with the peaks of ranks that had no step; files of the script are written out."""
    assert command.stdout is not None
    for line in command.stdout:
        if "STEPS" in line:
            break
    command.send_signal(signal.SIGINT)
    output, _ = command.communicate()
    assert command.returncode == 130, output
    assert "2 x h200 on 1 server" in output
    assert len(PEAKS.findall(output)) == 2
    assert [(tmp_path / f"log{rank}").read_text() for rank in range(2)] == ["not flushed\n"] * 2
    shown = [sys.executable, "-m", "phantora_async", "report", "run"]
    again = subprocess.run(shown, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert len(PEAKS.findall(again)) == 2


IS_IMPORTED = """\
import threading
open("imported", "w").close()
threading.Event().wait()
"""


@pytest.mark.parametrize("command", [("", "--preload", "slow")], indirect=True)
def test_ctrl_c_while_modules_are_imported(command: subprocess.Popen[str], tmp_path: Path) -> None:
    (tmp_path / "imported").open().close()  # when that has begun
    command.send_signal(signal.SIGINT)
    output, _ = command.communicate()
    assert command.returncode == 130, output
    assert output == "error: interrupted\n"
    assert descendants_of(command.pid) == []
    assert list((tmp_path / "tmp").iterdir()) == []
