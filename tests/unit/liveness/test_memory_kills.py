"""A process that the kernel ended for lack of memory is told from one that somebody has killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from phantora_async.liveness.memory_kills import MemoryKills


@pytest.mark.parametrize(
    ("line", "group", "events", "limit"),
    [
        ("0::/job", "job", "memory.events", "memory.max"),
        ("0::/of/the/host", ".", "memory.events", "memory.max"),
        ("8:pids:/\n7:memory:/job\n0::/", "memory/job", "memory.oom_control", "memory.limit_in_bytes"),
    ],
)
def test_the_kernel_s_counters_say_why(tmp_path: Path, line: str, group: str, events: str, limit: str) -> None:
    folder, groups = tmp_path / "groups" / group, tmp_path / "groups"
    folder.mkdir(parents=True, exist_ok=True)
    of_process, machine = tmp_path / "cgroup", tmp_path / "vmstat"
    of_process.write_text(f"{line}\n")
    machine.write_text("pgfault 7\noom_kill 3\n")
    (folder / events).write_text("low 0\noom_kill 1\n")
    (folder / limit).write_text("1500000000\n")
    kills = MemoryKills(of_process, groups, machine)
    assert kills.signal_in_words(signal.SIGKILL) == "SIGKILL"
    machine.write_text("pgfault 9\noom_kill 4\n")
    assert "this machine ran out of memory" in kills.signal_in_words(signal.SIGKILL)
    (folder / events).write_text("low 0\noom_kill 2\n")
    assert "whose limit is 1.5 GB" in kills.signal_in_words(signal.SIGKILL)
    assert kills.signal_in_words(signal.SIGSEGV) == "SIGSEGV"
