"""One process compiles a graph, the others wait: with real processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from emu.compiler.graph_cache import GraphLocks

ROOT = Path(__file__).parents[3]
HOLDER = """
import sys
from pathlib import Path
from emu.compiler.graph_cache import GraphLocks
locks = GraphLocks(Path(sys.argv[1]))
locks.acquire("graph")
print("held", flush=True)
sys.stdin.readline()
locks.release("graph")
print("released", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of "graph" until it is sent a line or ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


class Waiter(threading.Thread):
    """Acquires the lock of a graph, as a rank does in its process."""

    def __init__(self, folder: Path, key: str) -> None:
        super().__init__(daemon=True)
        self.locks, self.key, self.got = GraphLocks(folder), key, threading.Event()
        self.start()

    def run(self) -> None:
        self.locks.acquire(self.key)
        assert self.locks.holds(self.key)
        self.got.set()


def test_a_graph_s_lock_is_waited_for(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    waiter = Waiter(tmp_path, "graph")
    other = Waiter(tmp_path, "another graph")
    other.got.wait()
    assert not waiter.got.wait(0.2), "the other process compiles this graph"
    assert holder.stdin is not None
    holder.stdin.write("\n")
    holder.stdin.flush()
    assert waiter.got.wait(60)


def test_a_process_that_dies_gives_its_locks_up(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    waiter = Waiter(tmp_path, "graph")
    holder.kill()
    assert waiter.got.wait(60)


def test_all_locks_of_a_thread_are_given_up_together(tmp_path: Path) -> None:
    locks = GraphLocks(tmp_path)
    locks.acquire("a")
    locks.acquire("a")
    locks.acquire("b")
    locks.release_all()
    assert not locks.holds("a")
    assert not locks.holds("b")
    assert Waiter(tmp_path, "a").got.wait(60)


def test_without_a_folder_nobody_waits(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    locks = GraphLocks(file / "locks")
    locks.acquire("graph")
    assert not locks.holds("graph")
