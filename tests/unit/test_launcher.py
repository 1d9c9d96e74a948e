"""How the launcher ends processes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from phantora_async.launch.launcher import end, kill_marked, not_ended


async def test_a_process_that_does_not_end_is_killed() -> None:
    process = await asyncio.create_subprocess_exec("sleep", "1000")
    assert await end(process, 0.1) == []
    assert process.returncode == -signal.SIGKILL


async def test_a_process_that_ends_is_waited_for() -> None:
    process = await asyncio.create_subprocess_exec("sh", "-c", "read line; exit 3", stdin=asyncio.subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"end\n")
    assert await end(process, 1000.0) == []
    assert process.returncode == 3


async def test_a_process_that_cannot_be_killed_is_named_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is as one that the kernel holds: signals have no effect on it."""
    marked = subprocess.Popen(["sleep", "1000"], env={"TRITON_LIBCUDA_PATH": f"{tmp_path}/libraries"})
    forker = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        with monkeypatch.context() as held:
            held.setattr(psutil.Process, "kill", lambda process: None)
            held.setattr(asyncio.subprocess.Process, "kill", lambda process: None)
            assert kill_marked(tmp_path, killed_s=0.01) == [marked.pid]
            assert await end(forker, 0.01, killed_s=0.01) == [forker.pid]
        assert kill_marked(tmp_path) == []
    finally:
        marked.kill()
        marked.wait()
        forker.kill()
        await forker.wait()
    assert f"still there: process {marked.pid}, 7." in not_ended([marked.pid, 7])
