"""Runs `phantora-async run` as a user does: a real process, a real torch, no GPU."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parent / "scripts"
RANKS_PYTHON = os.environ.get("PHANTORA_TEST_PYTHON", sys.executable)
"""The interpreter that runs the ranks; another one may have frameworks that this one lacks."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What a run left: everything it printed, its exit code, its report (empty if it wrote none), its run directory."""

    output: str
    exit_code: int
    report: dict[str, Any] = field(default_factory=dict)
    run_dir: Path = Path()

    @property
    def simulated(self) -> dict[str, Any]:
        return dict(self.report["simulated"])

    def log(self, rank: int) -> str:
        return (self.run_dir / f"rank{rank}.log").read_text()


Run = Callable[..., Finished]


@functools.cache
def ranks_have(module: str) -> bool:
    """Is the module installed for the interpreter that runs the ranks?"""
    if sys.executable == RANKS_PYTHON:
        try:
            return importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:  # of the package that it would be in
            return False
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([RANKS_PYTHON, "-c", look], check=False).returncode == 0


def torch_is_usable() -> bool:
    return ranks_have("torch")


def needs_torch() -> None:
    if not torch_is_usable():
        pytest.skip("needs a CUDA build of PyTorch in this environment")


def needs(module: str) -> None:
    """Skips the test where the ranks lack a framework."""
    if not ranks_have(module):
        pytest.skip(f"needs {module}: pip install -e '.[frameworks]'")


def descendants_of(group: int) -> list[int]:
    """Processes of a process group that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """`run(script, *args, n=2, options=(...))` runs one emulated job. Afterwards no process of it may be left. With the
    option `-m` the script is a module, with `--launcher` a command.
    """
    needs_torch()
    started: list[subprocess.Popen[str]] = []

    def run_job(script: str | Path, *args: str, n: int = 2, options: tuple[str, ...] = ()) -> Finished:
        report, run_dir = tmp_path / f"report{len(started)}.json", tmp_path / f"run{len(started)}"
        path = script if "-m" in options or "--launcher" in options else SCRIPTS / script
        command = [sys.executable, "-m", "phantora_async", "run", "-n", str(n), "--report", str(report)]
        command += ["--python", RANKS_PYTHON, "--run-dir", str(run_dir), *options, str(path), *args]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            cwd=tmp_path,
            env=os.environ | {"COLUMNS": "160"},
        )
        started.append(process)
        try:
            output, _ = process.communicate()
        except BaseException:  # the tests' time limit
            os.killpg(process.pid, signal.SIGKILL)
            print(process.communicate()[0])  # pytest shows it with the failed test
            raise
        left = descendants_of(process.pid)
        assert left == [], f"{script} left processes {left} behind:\n{output}"
        return Finished(output, process.returncode, json.loads(report.read_text()) if report.exists() else {}, run_dir)

    yield run_job
    for process in started:
        if process.poll() is None or descendants_of(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
