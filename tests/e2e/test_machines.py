"""Servers on several machines: here, several processes of this one that join over TCP."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import RANKS_PYTHON, SCRIPTS, Finished, Run, needs_torch

pytestmark = pytest.mark.torch
TOKEN = "a token that nobody guesses"


class Machines:
    """A run whose coordinator listens, and machines that join it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = folder / "token-of-the-test"
        self.token.write_text(TOKEN)
        self.started: list[subprocess.Popen[str]] = []
        self.port = 0
        """Where the coordinator listens."""
        self.said = ""
        """The text that the coordinator had printed when it listened."""

    def command(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "phantora_async", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def run(self, script: str, *arguments: str, options: tuple[str, ...] = (), n: int = 4) -> subprocess.Popen[str]:
        given = ["run", "-n", str(n), "--nproc-per-node", "2", "--run-dir", "run", "--python", RANKS_PYTHON]
        given += ["--listen", "127.0.0.1:0", "--machines", "2", "--token-file", str(self.token)]
        coordinator = self.command(*given, *options, script, *arguments)
        for line in coordinator.stdout or ():
            self.said += line
            if found := re.search(r"phantora-async join 127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return coordinator
        pytest.fail(self.said)

    def join(self, token: Path | None = None) -> subprocess.Popen[str]:
        file = str(token or self.token)
        return self.command("join", f"127.0.0.1:{self.port}", "--token-file", file, "--python", RANKS_PYTHON)

    def connect(self) -> socket.socket:
        """A connection of a stranger."""
        return socket.create_connection(("127.0.0.1", self.port))

    def finish(self, process: subprocess.Popen[str]) -> Finished:
        output, _ = process.communicate()
        output = self.said + output if process is self.started[0] else output
        report = self.folder / "run" / "report.json"
        document = json.loads(report.read_text()) if report.exists() else {}
        return Finished(output, process.returncode, document, self.folder / "run")


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    needs_torch()
    found = Machines(tmp_path)
    yield found
    for process in found.started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_the_result_is_that_of_one_machine(machines: Machines, shared_run: Run) -> None:
    coordinator = machines.run(str(SCRIPTS / "determinism.py"))
    joined = [machines.join(), machines.join()]
    several = machines.finish(coordinator)
    assert several.exit_code == 0, several.output
    assert [process.wait() for process in joined] == [0, 0]
    one = shared_run("determinism.py", n=4, options=("--nproc-per-node", "2", "--isolation", "none"))
    assert one.exit_code == 0, one.output
    assert json.dumps(several.simulated, sort_keys=True) == json.dumps(one.simulated, sort_keys=True)


def test_neither_strangers_nor_a_third_machine_disturb_a_run_with_launchers(machines: Machines, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("another token, as long as it takes")
    command = ("--nproc-per-node", "2", str(SCRIPTS / "launched.py"), "ranks")
    coordinator = machines.run("torchrun", *command, options=("--launcher", "--"))
    with contextlib.ExitStack() as strangers:
        talks = strangers.enter_context(machines.connect())
        talks.sendall(b"GET / HTTP/1.1\r\nHost: coordinator\r\n\r\n" + bytes(1000))
        with contextlib.suppress(ConnectionResetError):
            assert talks.recv(1) == b"", "closed, with no answer"
        refused = machines.finish(machines.join(wrong))
        assert refused.exit_code == 69
        assert refused.output.startswith("error: what listens at 127.0.0.1:")
        assert "does not hold this token" in refused.output
        for _ in range(300):
            strangers.enter_context(machines.connect()).sendall(b"\x16\x03\x01")
        joined = [machines.join() for _ in range(3)]
        done = machines.finish(coordinator)
    assert done.exit_code == 0, done.output
    assert "SEEN [(0, 0" in done.log(0)
    assert done.output.count("refused a connection from 127.0.0.1: it does not hold the run's token") == 2
    assert done.output.count("refused a connection") == 5
    assert "Traceback" not in done.output
    assert sorted(machines.finish(process).exit_code for process in joined) == [0, 0, 69]


def test_nothing_is_executed_for_who_does_not_hold_the_token(machines: Machines, tmp_path: Path) -> None:
    """A coordinator that owns the port: with the wrong key it is left before it can say anything."""
    script = tmp_path / "evil.py"
    script.write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    other = tmp_path / "other"
    other.write_text("another token, as long as it takes")
    machines.token, right = other, machines.token
    coordinator = machines.run(str(script), n=4)
    machines.connect().close()
    joined = machines.finish(machines.join(right))
    assert joined.exit_code == 69, joined.output
    assert "does not hold this token" in joined.output
    assert not (tmp_path / "executed").exists()
    coordinator.send_signal(signal.SIGINT)
    assert "has joined" not in machines.finish(coordinator).output


def test_a_machine_that_vanishes_ends_the_run(machines: Machines, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    script = tmp_path / "waits.py"
    script.write_text(
        "import os, threading, torch\ntorch.zeros(1, device='cuda')\n"
        f"open({str(ready)!r}, 'w').write('rank\\n')\nthreading.Event().wait()\n"
    )
    coordinator = machines.run(str(script))
    first, second = machines.join(), machines.join()
    with ready.open("r+b", buffering=0) as arrived:
        assert [arrived.readline() for _ in range(4)] == [b"rank\n"] * 4
    os.kill(second.pid, signal.SIGKILL)
    done = machines.finish(coordinator)
    assert done.exit_code == 70, done.output
    assert "the machine at 127.0.0.1 (emulated server " in done.output
    assert "was lost" in done.output
    assert first.wait() == 0


def test_a_rank_that_fails_ends_all_machines(machines: Machines) -> None:
    coordinator = machines.run(str(SCRIPTS / "launched.py"), "ranks", "fails")
    joined = [machines.join(), machines.join()]
    done = machines.finish(coordinator)
    assert done.exit_code == 1, done.output
    assert "rank 3 (server 1) ended with exit code 1: ValueError: no such luck" in done.output
    assert [process.wait() for process in joined] == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("join", "somewhere", "--token-file", "/dev/null"), "the file is empty"),
        (("join", "localhost:1"), "no token"),
        (("join", "localhost:１２", "--token-file", "TOKEN"), "with a port from 1 to 65535"),
        (("join", "localhost:0", "--token-file", "TOKEN"), "with a port from 1 to 65535"),
        (("join", f"{'h' * 300}:1", "--token-file", "TOKEN"), "expected HOST:PORT"),
        (("join", "localhost:1", "--token-file", "TOKEN", "--wait", "nan"), "--wait nan: expected seconds"),
        (("join", "localhost:1", "--token-file", "TOKEN", "--wait=-1"), "--wait -1: expected seconds"),
        (("join", "localhost:1", "--token-file", "/dev/zero"), "which is no token"),
        (("run", "--listen", "here", "-n", "2", "x.py"), "expected HOST:PORT"),
        (("run", "--machines", "2", "-n", "2", "x.py"), "--machines and --token-file need --listen or --on"),
        (("run", "--listen", "localhost:0", "--machines", "3", "-n", "2", "x.py"), "this run has 1 servers"),
        (("run", "--listen", "localhost:0", "--isolation", "full", "x.py"), "--isolation none"),
    ],
)
def test_wrong_usage(machines: Machines, arguments: tuple[str, ...], said: str) -> None:
    (machines.folder / "x.py").touch()
    given = [str(machines.token) if argument == "TOKEN" else argument for argument in arguments]
    done = machines.finish(machines.command(*given))
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    assert said in done.output
