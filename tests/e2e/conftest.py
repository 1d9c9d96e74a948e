"""Runs `phantora-async run` as a user does: a real process, a real torch, no GPU."""

from __future__ import annotations

import functools
import hashlib
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

from ..conftest import Once, folder_of_all

SCRIPTS = Path(__file__).parent / "scripts"
RANKS_PYTHON = os.environ.get("PHANTORA_TEST_PYTHON", sys.executable)
"""The interpreter that runs the ranks; another one may have frameworks that this one lacks."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The outcome of a run: everything it printed, its exit code, its report (empty if it wrote none), its run
    directory.
    """

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
    """Tells whether the module is installed for the interpreter that runs the ranks."""
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
    """Returns the processes of a process group that still run."""
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


MOST_RUNS = 256
"""The most runs that `run` and `shared_run` start in all ordinary tests together. Each takes a processor seven seconds
at least.
"""


@pytest.fixture
def count_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], None]:
    """Is called before each run, and fails when there are too many."""
    ordinary = "not thorough" in request.config.option.markexpr
    runs = folder_of_all(tmp_path_factory) / "runs"

    def count() -> None:
        with runs.open("ab") as file:
            file.write(b".")
        assert not ordinary or runs.stat().st_size <= MOST_RUNS, (
            f"the ordinary tests start more than {MOST_RUNS} emulated runs: share one with another test (shared_run), "
            "or mark further combinations as thorough"
        )

    return count


WITH_CONSTANTS = """
import importlib, json, sys
for name, value in json.loads(sys.argv[1]).items():
    module, _, constant = name.rpartition(".")
    module = importlib.import_module("phantora_async." + module)
    assert isinstance(getattr(module, constant), float)
    setattr(module, constant, value)
from phantora_async import cli
cli.main(sys.argv[2:])
"""
DEADLOCK_SOON = {"coordinator.standstill.PATIENCE_S": 4.0}
"""All asleep for so long is a deadlock, or what virtual time no longer waits for, instead of for half a minute
(tests/unit/coordinator/test_standstill.py).
"""


class Job:
    """Runs jobs in a folder."""

    def __init__(self, folder: Path, count_run: Callable[[], None]) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []
        self._count_run = count_run

    def run(
        self,
        script: str | Path,
        *args: str,
        n: int = 2,
        options: tuple[str, ...] = (),
        constants: dict[str, float] | None = None,
    ) -> Finished:
        self._count_run()
        number = len(self.started)
        report, run_dir = self.folder / f"report{number}.json", self.folder / f"run{number}"
        path = script if "-m" in options or "--launcher" in options else SCRIPTS / script
        program = ["-c", WITH_CONSTANTS, json.dumps(constants)] if constants else ["-m", "phantora_async"]
        command = [sys.executable, *program, "run", "-n", str(n), "--report", str(report)]
        command += ["--python", RANKS_PYTHON, "--run-dir", str(run_dir), *options, str(path), *args]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            cwd=self.folder,
            env=os.environ | {"COLUMNS": "160"},
        )
        self.started.append(process)
        try:
            output, _ = process.communicate()
        except BaseException:  # the tests' time limit
            os.killpg(process.pid, signal.SIGKILL)
            print(process.communicate()[0])  # pytest shows it with the failed test
            raise
        left = descendants_of(process.pid)
        assert left == [], f"{script} left processes {left} behind:\n{output}"
        return Finished(output, process.returncode, json.loads(report.read_text()) if report.exists() else {}, run_dir)

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None or descendants_of(process.pid):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def run(tmp_path: Path, count_run: Callable[[], None]) -> Iterator[Run]:
    """`run(script, *args, n=2, options=(...))` runs one emulated job. Afterwards no process of it may be left. With the
    option `-m` the script is a module, with `--launcher` a command. `constants`: other values of the coordinator's, for
    waits in real time that are too long for a test.
    """
    needs_torch()
    job = Job(tmp_path, count_run)
    yield job.run
    job.end()


@pytest.fixture
def shared_run(once: Once, count_run: Callable[[], None]) -> Run:
    """Runs a job that several tests look at: the first one does, and it is recorded beside its run directory.
    The script may write no files.
    """
    needs_torch()

    def run_once(script: str | Path, *args: str, n: int = 2, options: tuple[str, ...] = ()) -> Finished:
        asked = [str(script), *args, str(n), *options]

        def make(folder: Path) -> Finished:
            job = Job(folder, count_run)
            recording = () if "--launcher" in options else ("--record", str(folder / "recorded"))
            try:
                return job.run(script, *args, n=n, options=(*recording, *options))
            finally:
                job.end()

        found = once(f"run-{hashlib.sha256(repr(asked).encode()).hexdigest()[:16]}", make)
        assert isinstance(found, Finished)
        return found

    return run_once
