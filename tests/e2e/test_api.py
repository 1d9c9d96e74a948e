"""`phantora_async.run` as a script or a notebook uses it: in a process of its own, whatever goes on around it."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

import phantora_async as pa

from .conftest import RANKS_PYTHON, needs_torch

TRAINS = """\
import sys, torch
weight = torch.nn.Parameter(torch.ones(256, 256, device="cuda"))
optimizer = torch.optim.SGD([weight])
for step in range(5):
    (weight @ weight).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("done", *sys.argv[1:])
"""
WAITS = "import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.01)\n"
FAILS = TRAINS + "raise SystemExit(7)\n"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`script(text)` is a file in the working directory. No process may be left afterwards."""
    needs_torch()
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> Path:
        (tmp_path / "script.py").write_text(text)
        return tmp_path / "script.py"

    yield write
    assert psutil.Process().children(recursive=True) == []


def run(script: Path, *arguments: str, **options: Any) -> pa.Run:
    return pa.run(script, arguments, python=RANKS_PYTHON, progress=False, **options)


def test_in_a_notebook(script: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """An event loop runs in the calling thread, sys.stdout is no file."""
    path, shown = script(TRAINS), io.StringIO()
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]

    async def cell() -> pa.Run:
        with contextlib.redirect_stdout(shown):
            return run(path, "ünïcode", world_size=2)

    result = asyncio.run(cell())
    assert shown.getvalue() == "done ünïcode\n"
    assert capfd.readouterr().out == ""
    assert result.world_size == len(result.ranks) == 2
    assert [step.number for step in result.steps] == [2, 3, 4, 5]
    assert result.step_time > 0
    assert any("gemm" in kernel.title for kernel in result.kernels)
    assert result.path.is_file()
    assert result.log(1) == "done ünïcode\n"
    assert result.report["run"]["arguments"] == ["ünïcode"]
    assert set(result.report["run"]["versions"]) == {"phantora-async", "torch", "python"}
    assert pa.load(result.run_dir).report == result.report
    assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]


def test_in_threads(script: Any) -> None:
    path = script(TRAINS)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda gpu: run(path, gpu=gpu, show_ranks="none"), ["h200", "a100-80g"])
    assert (first.gpu, second.gpu) == ("h200", "a100-80g")
    assert first.run_dir != second.run_dir


def test_a_failed_run_is_an_exception_with_what_there_is(script: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(pa.RunFailure, match=r"rank 0 .* ended with exit code 7") as caught:
        run(script(FAILS))
    error = caught.value
    assert error.exit_code == 7
    assert error.run.exit_code == 7
    assert "ended with exit code 7" in error.run.failure
    assert "logs: " in error.hint
    assert error.hint in error.__notes__
    assert capfd.readouterr().out == "done\n"


def test_wrong_options_are_an_exception(script: Any, tmp_path: Path) -> None:
    with pytest.raises(pa.UsageError, match=r"script not found: absent\.py") as caught:
        run(Path("absent.py"))
    assert (caught.value.exit_code, caught.value.run) == (2, None)
    with pytest.raises(pa.UsageError, match="steps 0: expected"):
        run(script(TRAINS), steps=0)
    assert not (tmp_path / "phantora-runs").exists()


INTERRUPTED = """\
import os, signal, sys, threading
import phantora_async as pa

class Output:
    def write(self, text):
        sys.__stdout__.write(text)
        if "begun" in text:
            os.kill(os.getpid(), signal.SIGINT)
    def flush(self):
        sys.__stdout__.flush()

sys.stdout = Output()
try:
    pa.run("script.py", python=sys.argv[1], progress=False, run_dir="run")
except KeyboardInterrupt as interrupt:
    print("stopped:", *interrupt.__notes__)
print("exit code", pa.load("run").exit_code)
"""


def test_ctrl_c_ends_the_run_in_good_order(script: Any, tmp_path: Path) -> None:
    script(WAITS)
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, RANKS_PYTHON],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(pa.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("begun\nstopped: interrupted")
    assert "report: run/report.json" in done.stdout
    assert done.stdout.endswith("exit code 130\n")


KILLED = """\
import os, sys
import phantora_async as pa

class Output:
    def write(self, text):
        if "begun" in text:
            os.kill(os.getpid(), 9)
    def flush(self):
        pass

sys.stdout = Output()
pa.run("script.py", python=sys.argv[1], progress=False, run_dir="run")
"""


def test_a_run_ends_with_its_caller(script: Any, tmp_path: Path) -> None:
    script(WAITS)
    environment = os.environ | {"PYTHONPATH": str(Path(pa.__file__).parents[1]), "PHANTORA_TEST": str(tmp_path)}
    caller = subprocess.Popen([sys.executable, "-c", KILLED, RANKS_PYTHON], cwd=tmp_path, env=environment)
    assert caller.wait() == -signal.SIGKILL
    left = [process for process in psutil.process_iter() if _belongs(process, str(tmp_path))]
    _, alive = psutil.wait_procs(left, timeout=60)
    assert alive == []


def _belongs(process: psutil.Process, mark: str) -> bool:
    try:
        return bool(process.environ().get("PHANTORA_TEST") == mark)
    except psutil.Error:
        return False
