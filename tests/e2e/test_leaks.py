"""Nothing of a run is left, however it ends: no process, mount, network interface, shared memory or folder."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from .conftest import RANKS_PYTHON, needs_torch
from .test_isolation import NOBODY, ROOT, ordinary_users_python

pytestmark = pytest.mark.torch
MARK = "PHANTORA_TEST"
SCRIPT = """
import multiprocessing.util, os, subprocess, sys, threading
import torch
multiprocessing.util.get_temp_dir()
torch.zeros(4, device="cuda")
subprocess.Popen(["sleep", "1000"])
subprocess.run(["setsid", "-f", "sleep", "1000"], check=True)
child = subprocess.Popen([sys.executable, "-c", "import threading; print(flush=True); threading.Event().wait()"],
                         stdout=subprocess.PIPE)
child.stdout.readline()
with open("ready", "w") as ready:
    print("rank", file=ready)
if "fails" in sys.argv and os.environ["RANK"] == "3":
    with open("go") as go:
        go.read()
    sys.exit(3)
threading.Event().wait()
"""
RANKS = 4


@dataclass
class Running:
    """A run of two servers, whose ranks have started processes of their own and wait."""

    folder: Path
    command: subprocess.Popen[bytes]

    def processes(self) -> list[int]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == str(self.folder) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.pid)
        return found

    @property
    def forker(self) -> int:
        return child(self.command.pid)

    @property
    def server(self) -> int:
        return next(one.pid for one in psutil.Process(self.forker).children() if one.children())  # not the keeper

    @property
    def first_of_server(self) -> int:
        """A rank, or the user's launcher."""
        return child(self.server)

    @property
    def stub(self) -> int:
        """Returns the process that stands for Python under the user's launcher."""
        return child(self.first_of_server)

    def wait(self) -> int:
        """Waits until everything has ended: a process that stays fails the test by its time limit."""
        code = self.command.wait()
        while left := self.processes():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    descriptor = os.pidfd_open(pid)
                    select.select([descriptor], [], [])
                    os.close(descriptor)
        return code


def wait_for(ready: int, command: subprocess.Popen[bytes]) -> None:
    """Waits until all ranks have said that they are ready, or the command has ended, which fails the test."""
    ended = os.pidfd_open(command.pid)
    said = b""
    while said.count(b"\n") < RANKS:
        readable, _, _ = select.select([ready, ended], [], [])
        assert ready in readable, f"the command ended with exit code {command.wait()}"
        said += os.read(ready, 64)
    os.close(ended)


def child(pid: int) -> int:
    return min(process.pid for process in psutil.Process(pid).children())


def state(runtime: Path) -> list[object]:
    """Returns what a run could leave behind on this machine."""
    mounts = Path("/proc/self/mountinfo").read_text()
    interfaces = sorted(name for _, name in socket.if_nameindex())
    ours = [name for folder in (runtime, "/dev/shm") for name in os.listdir(folder) if "phantora" in name]
    ours += [name for name in os.listdir(runtime) if name.startswith("pymp-")]
    return [mounts, interfaces, ours]  # torchrun leaves files of its own in TMPDIR when it is killed


@contextlib.contextmanager
def running(folder: Path, *options: str, fails: bool = False, user: int | None = None) -> Iterator[Running]:
    needs_torch()
    environment = os.environ | {MARK: str(folder), "TMPDIR": str(folder / "runtime"), "HOME": str(folder)}
    python, ranks_python = sys.executable, RANKS_PYTHON
    identity: dict[str, Any] = {}
    if user is not None:
        packages = [path for path in sys.path if path.endswith("site-packages")]
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, sys.path), *packages])
        python = ranks_python = ordinary_users_python(environment)
        if os.getuid() == 0:
            identity = {"user": user, "group": user, "extra_groups": []}
    (folder / "runtime").mkdir()
    (folder / "script.py").write_text(SCRIPT)
    os.mkfifo(folder / "ready")
    os.mkfifo(folder / "go")
    for path in (folder, *folder.iterdir()):
        os.chown(path, identity.get("user", -1), -1)
    run = [python, "-m", "phantora_async"]
    run += ["run", "-n", str(RANKS), "--nproc-per-node", "2", "--python", ranks_python]
    run += ["--run-dir", str(folder / "run"), *options, "script.py", *(["fails"] if fails else [])]
    before = state(folder / "runtime")
    command = subprocess.Popen(run, cwd=folder, env=environment, start_new_session=True, **identity)
    job = Running(folder, command)
    try:
        # Open for writing too: reading does not end when one rank has closed it and the next has yet to open it.
        with (folder / "ready").open("r+b", buffering=0) as ready:
            wait_for(ready.fileno(), command)
        yield job
        assert state(folder / "runtime") == before
    finally:
        for pid in job.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        command.wait()


HOW = {
    "a script": (),
    "torchrun": ("--launcher", "--", "torchrun", "--nproc-per-node", "2"),
}
VICTIMS = [
    ("a script", "coordinator"),
    ("a script", "Ctrl-C"),
    ("torchrun", "forker"),
    ("torchrun", "server"),
    ("torchrun", "launcher"),
    ("torchrun", "stub"),
    ("torchrun", "nothing: a rank fails"),
    *(
        pytest.param(*one, marks=pytest.mark.thorough)
        for one in (("a script", "forker"), ("a script", "server"), ("torchrun", "coordinator"), ("torchrun", "Ctrl-C"))
    ),
]


def end(job: Running, victim: str) -> None:
    victims = {"coordinator": job.command.pid, "forker": job.forker, "server": job.server}
    if victim in victims:
        os.kill(victims[victim], signal.SIGKILL)
    elif victim == "launcher":
        os.kill(job.first_of_server, signal.SIGKILL)
    elif victim == "stub":
        os.kill(job.stub, signal.SIGKILL)
    elif victim == "Ctrl-C":
        job.command.send_signal(signal.SIGINT)
    else:
        (job.folder / "go").write_text("go")


CODES = {"coordinator": -9, "forker": 70, "server": 70, "launcher": 137, "stub": 137, "Ctrl-C": 130}
"""The exit codes of the command, by what is ended."""


@pytest.mark.parametrize("isolation", ["full", pytest.param("none", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(("how", "victim"), VICTIMS)
def test_nothing_is_left(tmp_path: Path, how: str, victim: str, isolation: str) -> None:
    fails = victim.startswith("nothing")
    with running(tmp_path, "--isolation", isolation, *HOW[how], fails=fails) as job:
        end(job, victim)
        code = job.wait()
        # torchrun ends the other rank by SIGTERM, and that may be known first.
        assert code == CODES.get(victim, 3) or (victim == "stub" and code == 128 + signal.SIGTERM)


THOROUGH = (pytest.param(victim, marks=pytest.mark.thorough) for victim in ("server", "Ctrl-C"))


@pytest.mark.parametrize("victim", ["coordinator", *THOROUGH])
def test_nothing_of_an_ordinary_user_is_left(victim: str) -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        torchrun = ("--launcher", "--", "python", "-m", "torch.distributed.run", "--nproc-per-node", "2")
        with running(folder, "--isolation", "full", *torchrun, user=NOBODY) as job:
            end(job, victim)
            assert job.wait() == CODES[victim]
    finally:
        shutil.rmtree(folder)
