"""Processes that are forked for the runs of a session are what processes of their own would be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phantora_async.api import run_processes, running
from phantora_async.api.run_processes import ForkedProcess, RunProcesses
from phantora_async.options import RunOptions

ROOT = Path(run_processes.__file__).parents[2]
# In place of a run: says what the process is.
CHILD = """\
import json, os, signal, sys
from phantora_async.api import child, run_server

def main(descriptor, parent, interpreters):
    child.prctl(1, signal.SIGTERM)
    text = sys.stdin.read()
    if text == "wait":
        os.write(descriptor, b"waits")
        signal.pause()
    told = {
        "environment": dict(os.environ), "folder": os.getcwd(), "session": os.getsid(0) == os.getpid(),
        "group": os.getpgrp() == os.getpid(), "stdin": text, "files": sorted(map(int, os.listdir("/proc/self/fd"))),
        "parent": parent, "place": str(interpreters), "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "child": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL, "umask": os.umask(0),
    }
    print("out")
    print("error", file=sys.stderr)
    os.write(descriptor, json.dumps(told).encode())

child.main = main
run_server.child.main = main
"""


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunProcesses]:
    start = "from phantora_async.api.run_server import main\n"
    assert start in run_processes.BOOTSTRAP
    monkeypatch.setattr(run_processes, "BOOTSTRAP", run_processes.BOOTSTRAP.replace(start, CHILD + start))
    with RunProcesses() as made:
        yield made


class Pipes:
    """The descriptors that a process gets, and our ends of them."""

    def __init__(self) -> None:
        self.stdin, self.out, self.error, self.result = (os.pipe() for _ in range(4))

    def start(self, processes: RunProcesses, environment: dict[str, str], text: str = "") -> ForkedProcess | None:
        made = processes.start(environment, self.stdin[0], self.out[1], self.error[1], self.result[1])
        for descriptor in (self.stdin[0], self.out[1], self.error[1], self.result[1]):
            os.close(descriptor)
        os.write(self.stdin[1], text.encode())
        os.close(self.stdin[1])
        return made

    def read(self) -> tuple[dict[str, Any], str, str]:
        found = []
        for one in (self.result[0], self.out[0], self.error[0]):
            with open(one, "rb") as file:
                found.append(file.read())
        result, out, error = found
        return json.loads(result or b"{}"), out.decode(), error.decode()


def test_a_forked_process_is_what_one_of_its_own_would_be(
    processes: RunProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        pipes = Pipes()
        environment = {**os.environ, "OF_RUN": str(number)}
        made = pipes.start(processes, environment, f"text {number}")
        assert made is not None
        told, out, error = pipes.read()
        assert made.wait(60) == 0
        assert (out, error) == ("out\n", "error\n")
        assert told["environment"] == environment
        assert (told["folder"], told["stdin"]) == (str(folder), f"text {number}")
        assert (told["session"], told["group"], told["child"], told["blocked"]) == (True, True, True, [])
        assert told["place"] == str(processes.interpreters())
        mask = os.umask(0)
        os.umask(mask)
        assert told["umask"] == mask
        result = [one for one in told["files"] if one > 2]
        assert len(result) == 2, "that of the result, and the folder that is listed"


def test_a_process_can_be_ended_and_its_signal_is_told(processes: RunProcesses) -> None:
    pipes = Pipes()
    made = pipes.start(processes, dict(os.environ), "wait")
    assert made is not None
    assert os.read(pipes.result[0], 5) == b"waits"
    with pytest.raises(subprocess.TimeoutExpired):
        made.wait(0)
    made.terminate()
    assert made.wait(60) == -signal.SIGTERM
    made.kill()  # nobody is there any more
    assert made.wait() == -signal.SIGTERM


@pytest.mark.parametrize("name", ["PYTHONPATH", "LD_PRELOAD", "OMP_NUM_THREADS", "TZ", "LC_ALL"])
def test_what_is_read_at_the_start_needs_a_process_of_its_own(processes: RunProcesses, name: str) -> None:
    pipes = Pipes()
    assert pipes.start(processes, {**os.environ, name: "else"}) is None


def test_what_processes_inherit_has_changed(processes: RunProcesses) -> None:
    pipes = Pipes()
    made = pipes.start(processes, dict(os.environ))
    assert made is not None
    pipes.read()
    mask = os.umask(0o027)
    try:
        assert Pipes().start(processes, dict(os.environ)) is None
    finally:
        os.umask(mask)


def test_all_ends_with_the_session(processes: RunProcesses) -> None:
    pipes = Pipes()
    assert pipes.start(processes, dict(os.environ), "wait") is not None
    assert os.read(pipes.result[0], 5) == b"waits"
    folder = processes.interpreters()
    assert folder is not None
    assert folder.is_dir()
    processes.close()
    assert pipes.read()[0] == {}, "the run got SIGTERM, which closes its pipes"
    assert not folder.exists()


def test_all_ends_with_a_killed_session(tmp_path: Path) -> None:
    program = f"""\
import os, sys
sys.path.append({str(ROOT)!r})
from phantora_async.api import run_processes
from tests.unit.api.test_run_processes import CHILD, Pipes
start = "from phantora_async.api.run_server import main\\n"
run_processes.BOOTSTRAP = run_processes.BOOTSTRAP.replace(start, CHILD + start)
processes, pipes = run_processes.RunProcesses(), Pipes()
pipes.start(processes, dict(os.environ), "wait")
os.read(pipes.result[0], 5)
os.set_inheritable(0, True)
print(processes.interpreters(), flush=True)
os.kill(os.getpid(), 9)
"""
    # The server has the pipe as its stderr: it ends when all processes of the session have.
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not Path(done.stdout.strip()).exists()


def test_a_server_that_cannot_start_costs_nothing_but_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run_processes, "BOOTSTRAP", "")
    monkeypatch.setattr(running, "BOOTSTRAP", "import os, sys; os.write(int(sys.argv[2]), b'x')")
    with RunProcesses() as processes:
        child = running._Child(RunOptions("train.py"), {}, processes)
        assert isinstance(child._process, subprocess.Popen)
        assert child._process.wait() == 0
