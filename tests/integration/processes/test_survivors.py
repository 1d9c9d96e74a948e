"""Whatever is killed, nothing survives: not the ranks, not what they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from phantora_async.launcher import HOOK

pytestmark = pytest.mark.torch

SCRIPT = """
import os, subprocess, threading
subprocess.Popen(["sleep", "1000"])
subprocess.Popen(["sh", "-c", "sleep 1000 & sleep 1000"], start_new_session=True)
subprocess.Popen(["setsid", "-f", "sleep", "1000"])
open(f"up{os.environ['RANK']}", "w").close()
threading.Event().wait()
"""
HOLD = """
import asyncio, sys
from pathlib import Path
from tests.integration.processes.conftest import _run, configure
asyncio.run(_run(configure(Path(sys.argv[1]), "-n", "3", "--nproc-per-node", "2", sys.argv[1] + "/script.py"), None))
"""


def marked(mark: str) -> dict[int, str]:
    """Processes whose environment names the test's folder, with their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
    return found


def until(condition: object, limit_s: float) -> bool:
    assert callable(condition)
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("victim", ["launcher", "forker", "server", "rank"])
def test_nothing_survives(tmp_path: Path, victim: str) -> None:
    if not HOOK.exists():
        pytest.skip("needs the built hook library")
    (tmp_path / "script.py").write_text(SCRIPT)
    mark = f"PHANTORA_TEST={tmp_path}"
    environment = os.environ | {"PHANTORA_DETACHED": "1", "PHANTORA_TEST": str(tmp_path)}
    environment["PYTHONPATH"] = str(Path(__file__).parents[3])
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], env=environment, cwd=tmp_path, start_new_session=True
    )
    try:
        assert until(lambda: all((tmp_path / f"up{rank}").exists() for rank in range(3)), 60)
        below = {pid: parent_of(pid) for pid in marked(mark)}
        forker = next(pid for pid, parent in below.items() if parent == holder.pid)
        server = next(pid for pid, parent in below.items() if parent == forker)
        rank = next(pid for pid, parent in below.items() if parent == server)
        assert sum("sleep" in line for line in marked(mark).values()) >= 12
        os.kill({"launcher": holder.pid, "forker": forker, "server": server, "rank": rank}[victim], signal.SIGKILL)
        if victim == "rank" or victim == "server":
            time.sleep(0.2)
            holder.send_signal(signal.SIGINT)
        holder.wait(30)
        assert until(lambda: not marked(mark), 15), marked(mark)
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
        holder.wait(10)


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
