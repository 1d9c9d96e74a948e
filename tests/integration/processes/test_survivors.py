"""Whatever is killed, nothing survives: not the ranks, not what they started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from phantora_async.launch.runtime import HOOK

pytestmark = pytest.mark.torch

STARTED = 4
"""Processes that each rank starts, in its own session or in others."""
SCRIPT = """
import os, subprocess, threading
subprocess.Popen(["sleep", "1000"])
shell = subprocess.Popen(["sh", "-c", "sleep 1000 & echo; wait"], start_new_session=True, stdout=subprocess.PIPE)
shell.stdout.readline()
subprocess.run(["setsid", "-f", "sleep", "1000"], check=True)
with open("ready", "w") as ready:
    print("rank", file=ready)
threading.Event().wait()
"""
HOLD = """
import asyncio, signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background commands ignore it
from tests.integration.processes.conftest import configure, run_processes
folder = Path(sys.argv[1])
asyncio.run(run_processes(configure(folder, "-n", "3", "--nproc-per-node", "2", str(folder / "script.py"))))
"""


def processes_of(folder: Path) -> list[int]:
    """Processes whose environment names the test's folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("PHANTORA_TEST") == str(folder):
                found.append(process.pid)
    return found


def wait_until_gone(folder: Path) -> None:
    """Waits, without a limit of its own: a process that survives fails the test by its time limit."""
    while alive := processes_of(folder):
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                select.select([descriptor], [], [])
                os.close(descriptor)


THOROUGH = (pytest.param(victim, marks=pytest.mark.thorough) for victim in ("forker", "server"))
"""Whole runs without these leave nothing, either: tests/e2e/test_leaks.py."""


@pytest.mark.parametrize("victim", ["launcher", "rank", *THOROUGH])
def test_nothing_survives(tmp_path: Path, victim: str) -> None:
    if not HOOK.exists():
        pytest.skip("needs the built hook library")
    (tmp_path / "script.py").write_text(SCRIPT)
    os.mkfifo(tmp_path / "ready")
    environment = os.environ | {"PHANTORA_TEST": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[3])}
    launcher = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], env=environment, cwd=tmp_path, start_new_session=True
    )
    try:
        # Open for writing too: reading does not end when one rank has closed it and the next has yet to open it.
        with (tmp_path / "ready").open("r+b", buffering=0) as ready:
            assert [ready.readline() for _ in range(3)] == [b"rank\n"] * 3
        forker = only_child(launcher.pid)
        # The keeper, the store and what fills pages, which are children of the forker, too, have none.
        own = psutil.Process(forker).children()
        server = next(child.pid for child in own if child.children())
        rank = psutil.Process(server).children()[0].pid
        # Launcher, forker, its helpers and servers, ranks, theirs. What has just begun has no environment.
        while len(processes_of(tmp_path)) != 2 + len(own) + 3 + 3 * STARTED:
            pass
        pids = {"launcher": launcher.pid, "forker": forker, "server": server, "rank": rank}
        os.kill(pids[victim], signal.SIGKILL)
        if victim in ("rank", "server"):  # the others go on until the launcher is told to end
            launcher.send_signal(signal.SIGINT)
        launcher.wait()
        wait_until_gone(tmp_path)
    finally:
        for pid in processes_of(tmp_path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        launcher.wait()


def only_child(pid: int) -> int:
    (child,) = psutil.Process(pid).children()
    return child.pid
