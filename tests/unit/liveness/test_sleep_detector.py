"""Telling sleeping ranks from busy ones, with a /proc of our own, and once with the real one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from emu.contract.definitions.thread_names import AWAKE, STANDS_FOR
from phantora_async.liveness import proc_fs
from phantora_async.liveness.proc_fs import ProcFs
from phantora_async.liveness.sleep_detector import (
    POLLING_LOOKS,
    RESTLESS_NS,
    NotKnownYet,
    Seen,
    SleepDetector,
    Thread,
)

MS = 1_000_000
LOOK = 50 * MS
ROOT = Path(__file__).parents[3]


class FakeProc:
    """A stand-in for /proc, in which time passes by a look's distance at every look; threads are what the test says."""

    def __init__(self) -> None:
        self.at_ns = 0
        self.now: dict[int, Thread] | None = {1: Thread("python", True, True, 500)}

    def look(self, pid: int) -> Seen | None:
        return None if self.now is None else Seen(self.now, self.at_ns, self.at_ns)

    def now_ns(self) -> int:
        self.at_ns += LOOK
        return self.at_ns

    def use(self, number: int, for_ns: int, *, sleeping: bool = True) -> None:
        assert self.now is not None
        was = self.now[number]
        self.now = self.now | {number: Thread(was.name, was.main, sleeping, was.used_ns + for_ns)}


@pytest.fixture
def proc() -> FakeProc:
    return FakeProc()


def test_asleep_twice_without_processor_time(proc: FakeProc) -> None:
    sleepers = SleepDetector(proc)
    assert [sleepers.look(0, 1, LOOK) for _ in range(3)] == [False, True, True]
    assert sleepers.slept(0)
    sleepers.forget(0)
    assert not sleepers.look(0, 1, LOOK)


def test_looks_too_close_together_say_nothing(proc: FakeProc) -> None:
    sleepers = SleepDetector(proc)
    assert [sleepers.look(0, 1, 2 * LOOK) for _ in range(3)] == [False, False, True]


def test_a_computing_rank_is_awake(proc: FakeProc) -> None:
    sleepers = SleepDetector(proc)
    for _ in range(20):
        proc.use(1, LOOK, sleeping=False)
        assert not sleepers.look(0, 1, LOOK)


def test_one_that_computed_between_two_looks_is_awake(proc: FakeProc) -> None:
    sleepers = SleepDetector(proc)
    sleepers.look(0, 1, LOOK)
    for _ in range(20):
        proc.use(1, 20 * MS)
        assert not sleepers.look(0, 1, LOOK)


def test_polling_with_short_sleeps_is_recognised_after_some_looks(proc: FakeProc) -> None:
    sleepers = SleepDetector(proc)
    sleepers.look(0, 1, LOOK)
    seen = []
    for _ in range(POLLING_LOOKS):
        proc.use(1, 1 * MS)
        seen.append(sleepers.look(0, 1, LOOK))
    assert seen == [False] * (POLLING_LOOKS - 1) + [True]


def test_a_watching_thread_does_not_keep_its_rank_awake(proc: FakeProc) -> None:
    proc.now = {1: Thread("python", True, True, 0), 2: Thread("pt_nccl_watchdg", False, True, 0)}
    sleepers = SleepDetector(proc)
    sleepers.look(0, 1, LOOK)
    proc.use(2, 30 * MS)
    assert sleepers.look(0, 1, LOOK)


def test_nor_one_that_waits_for_a_processor(proc: FakeProc) -> None:
    proc.now = {1: Thread("python", True, True, 0), 2: Thread("pt_nccl_watchdg", False, False, 0)}
    sleepers = SleepDetector(proc)
    assert [sleepers.look(0, 1, LOOK) for _ in range(2)] == [False, True]


def test_a_poller_that_sometimes_waits_for_a_processor_is_recognised(proc: FakeProc) -> None:
    """It has slept just before. On a machine with other work most looks may find one of some pollers so."""
    proc.now = {1: Thread("python", True, True, 0), 2: Thread("python", False, True, 0)}
    sleepers = SleepDetector(proc)
    sleepers.look(0, 1, LOOK)
    seen = []
    for turn in range(2 * POLLING_LOOKS):
        proc.use(2, 2 * MS, sleeping=turn % 2 == 1)
        seen.append(sleepers.look(0, 1, LOOK))
    assert seen == [False] * (2 * POLLING_LOOKS - 1) + [True]


def test_one_that_waits_for_a_processor_at_two_looks_works(proc: FakeProc) -> None:
    proc.now = {1: Thread("python", True, True, 0), 2: Thread("python", False, True, 0)}
    sleepers = SleepDetector(proc)
    sleepers.look(0, 1, LOOK)
    for turn in range(10 * POLLING_LOOKS):
        proc.use(2, 2 * MS, sleeping=turn % POLLING_LOOKS > 1)
        assert not sleepers.look(0, 1, LOOK)


def test_a_thread_that_serves_a_message_at_this_moment_does(proc: FakeProc) -> None:
    proc.now = {1: Thread("python", True, True, 0), 2: Thread("pt_tcpstore_uv", False, True, 0)}
    sleepers = SleepDetector(proc)
    sleepers.look(0, 1, LOOK)
    proc.use(2, 0, sleeping=False)
    assert not sleepers.look(0, 1, LOOK)


def test_a_worker_thread_or_child_at_work_keeps_its_rank_awake_however_long(proc: FakeProc) -> None:
    proc.now = {1: Thread("python", True, True, 0), 2: Thread("python", False, False, 0)}
    sleepers = SleepDetector(proc)
    for _ in range(10 * RESTLESS_NS // LOOK):
        proc.use(2, LOOK, sleeping=False)
        assert not sleepers.look(0, 1, LOOK)


def test_one_that_gets_no_processor_is_at_work(proc: FakeProc) -> None:
    """On a machine with other work it may use little, but it wants to run."""
    proc.now = {1: Thread("python", True, True, 0), 2: Thread("python", False, False, 0)}
    sleepers = SleepDetector(proc)
    for _ in range(10 * RESTLESS_NS // LOOK):
        proc.use(2, 0, sleeping=False)
        assert not sleepers.look(0, 1, LOOK)


def test_a_thread_that_polls_and_sleeps_counts_for_a_while(proc: FakeProc) -> None:
    proc.now = {1: Thread("python", True, True, 0), 2: Thread("python", False, True, 0)}
    sleepers = SleepDetector(proc)
    looks = 0
    while not sleepers.look(0, 1, LOOK):
        proc.use(2, LOOK // 4)
        looks += 1
    assert looks * LOOK >= RESTLESS_NS
    assert sleepers.worked_ns()[0] == looks * (LOOK // 4)


def test_work_of_threads_that_have_ended_stays(proc: FakeProc) -> None:
    sleepers = SleepDetector(proc)
    sleepers.look(0, 1, LOOK)
    assert proc.now is not None
    ended = {2: Thread("python", False, False, 7 * MS), 3: Thread("pt_tcpstore_uv", False, False, 9 * MS)}
    main = proc.now
    proc.now = main | ended
    sleepers.look(0, 1, LOOK)
    proc.now = main
    sleepers.look(0, 1, LOOK)
    assert sleepers.worked_ns() == {0: 7 * MS}


class TwoRanks:
    """Ranks 0 and 1. A look takes a moment, at whose end the test may have a thread run."""

    def __init__(self) -> None:
        self.at_ns = 0
        self.used_ns = {1: 500, 2: 500}
        self.server_ns = 0
        """Processor time of a thread of rank 0 that serves others."""
        self.server = "pt_tcpstore_uv"
        self.unknown: set[int] = set()
        self.asleep = {1: True, 2: True}
        self.then: Callable[[int], None] = lambda pid: None

    def look(self, pid: int) -> Seen:
        if pid in self.unknown:
            raise NotKnownYet
        self.at_ns += 1
        threads = {pid: Thread("python", True, self.asleep[pid], self.used_ns[pid])}
        if pid == 1:
            threads[9] = Thread(self.server, False, True, self.server_ns)
        seen = Seen(threads, self.at_ns, self.at_ns + 1)
        self.then(pid)
        return seen

    def now_ns(self) -> int:
        return self.at_ns

    def rest(self) -> None:
        self.at_ns += LOOK


PIDS = {0: 1, 1: 2}


@pytest.fixture
def two() -> tuple[TwoRanks, SleepDetector]:
    """A detector of two ranks, each of which has been found asleep."""
    ranks = TwoRanks()
    sleepers = SleepDetector(ranks)
    for found in (False, True):
        assert [sleepers.look(rank, pid, 0) for rank, pid in PIDS.items()] == [found, found]
        ranks.rest()
    return ranks, sleepers


def test_all_are_asleep_at_once(two: tuple[TwoRanks, SleepDetector]) -> None:
    assert two[1].asleep_at_once(PIDS)


def test_ranks_that_wake_each_other_in_turn_are_not_asleep_at_once(two: tuple[TwoRanks, SleepDetector]) -> None:
    """Whichever is looked at sleeps, and works afterwards, until the other one is looked at."""
    ranks, sleepers = two

    def work(pid: int) -> None:
        ranks.used_ns[pid] += 1

    work(1)
    ranks.then = work
    for _ in range(3):
        assert not sleepers.asleep_at_once(PIDS)
    ranks.then = lambda pid: None
    assert sleepers.asleep_at_once(PIDS) is False, "they have worked since the last look"
    sleepers.forget(0)
    assert not sleepers.asleep_at_once(PIDS), "rank 0 has not been looked at since its last records"


def test_the_watchdog_wakes_no_other_rank(two: tuple[TwoRanks, SleepDetector]) -> None:
    ranks, sleepers = two
    ranks.server = "pt_nccl_timeout"
    ranks.server_ns += 1
    assert sleepers.asleep_at_once(PIDS)


def test_looks_from_before_somebody_was_told_something_are_too_old(two: tuple[TwoRanks, SleepDetector]) -> None:
    """The process of rank 1 is on another machine, which answers later."""
    ranks, sleepers = two
    sleepers.may_wake()
    ranks.unknown = {2}
    assert not sleepers.asleep_at_once(PIDS)
    ranks.unknown = set()
    assert sleepers.asleep_at_once(PIDS)


def test_a_thread_that_has_served_a_message_may_have_woken_a_rank(two: tuple[TwoRanks, SleepDetector]) -> None:
    ranks, sleepers = two
    ranks.server_ns += 1
    assert not sleepers.asleep_at_once(PIDS)
    assert sleepers.asleep_at_once(PIDS)


def test_threads_that_always_wake_up_hold_nobody_for_ever(two: tuple[TwoRanks, SleepDetector]) -> None:
    ranks, sleepers = two
    for expected in [False] * (POLLING_LOOKS - 1) + [True]:
        ranks.server_ns += 1
        assert sleepers.asleep_at_once(PIDS) is expected


def test_a_process_that_has_gone_is_not_asleep(proc: FakeProc) -> None:
    sleepers = SleepDetector(proc)
    sleepers.look(0, 1, LOOK)
    proc.now = None
    assert not sleepers.look(0, 1, LOOK)


def test_real_processes_and_their_children_are_seen() -> None:
    inner = "import sys; print(1, flush=True); sys.stdin.read()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{inner}'])"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert child.stdout is not None
    try:
        child.stdout.readline()
        threads = ProcFs().threads(child.pid)
        assert threads is not None
        assert len(threads) == 2
        assert threads[child.pid].main
        assert all(thread.used_ns > 0 for thread in threads.values())
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
    assert ProcFs().threads(child.pid) is None


def test_what_a_server_forks_for_a_rank_s_program_counts_as_the_rank_s() -> None:
    """This process is the server. The rank's child stands for a process that is not its descendant."""
    works = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    name = f"{STANDS_FOR} {works.pid}"
    inner = f"import ctypes; ctypes.CDLL(None).prctl(15, b'{name}'); print(1, flush=True); input()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    rank = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert rank.stdout is not None
    try:
        rank.stdout.readline()
        threads = ProcFs().threads(rank.pid)
        assert threads is not None
        assert works.pid in threads
        assert other.pid not in threads
        while not all(thread.sleeping for thread in threads.values() if thread.name == name):
            threads = ProcFs().threads(rank.pid)  # it has written its line, and goes to sleep soon
            assert threads is not None
        works.kill()
        os.waitid(os.P_PID, works.pid, os.WEXITED | os.WNOWAIT)  # it is left to the server to wait for it
        for _ in range(2):
            threads = ProcFs().threads(rank.pid)
            assert threads is not None
            assert [thread.sleeping for thread in threads.values() if thread.name == name] == [False]
            works.communicate()
        assert len(threads) == 2
    finally:
        os.killpg(rank.pid, signal.SIGKILL)
        for process in (rank, works, other):
            process.kill()
            process.communicate()


def test_what_stood_for_a_program_and_has_ended_is_no_longer_awake() -> None:
    """The rank has yet to wait for it, and may first ask for the time, which must then go on."""
    code = (
        "import ctypes, os, time\n"
        "child = os.fork()\n"
        f"if not child: ctypes.CDLL(None).prctl(15, b'{STANDS_FOR} 4000000'); os._exit(0)\n"
        "os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT); print(child, flush=True); input()"
    )
    rank = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert rank.stdout is not None
    try:
        ended = int(rank.stdout.readline())
        threads = ProcFs().threads(rank.pid)
        assert threads is not None
        assert threads[ended].name.startswith(STANDS_FOR)
        assert threads[ended].sleeping
    finally:
        rank.kill()
        rank.communicate()


def test_a_thread_that_waits_for_its_own_process_is_awake() -> None:
    """The thread is marked as the hook library marks it."""
    code = (
        f"import ctypes, sys; call = ctypes.CDLL(None).prctl; call(15, b'{AWAKE}'); print(1, flush=True);"
        "sys.stdin.readline(); call(15, b'python'); print(2, flush=True); sys.stdin.readline()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    sleepers = SleepDetector(ProcFs())
    try:
        child.stdout.readline()
        assert not any(sleepers.look(0, child.pid, 0) for _ in range(20))
        child.stdin.write("\n")
        child.stdin.flush()
        child.stdout.readline()
        while not sleepers.look(0, child.pid, 1_000_000):
            pass
    finally:
        child.kill()
        child.communicate()


def test_a_stopped_process_is_told_from_one_that_sleeps() -> None:
    child = subprocess.Popen(["sleep", "1000"])
    try:
        sleepers = SleepDetector(ProcFs())
        sleepers.look(0, child.pid, 0)
        assert not sleepers.stopped(0)
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        while not sleepers.look(0, child.pid, 0):
            pass  # this process may know before the other one has left its processor
        assert sleepers.stopped(0)
    finally:
        child.kill()
        child.wait()


def test_of_a_process_that_has_not_run_only_states_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import subprocess, sys, threading\n"
        "for line in sys.stdin:\n"
        "    if line == 'thread\\n': threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "    if line == 'child\\n': subprocess.Popen(['sleep', '1000'])\n"
        "    print(line, end='', flush=True)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    read: list[str] = []
    original = proc_fs._read
    monkeypatch.setattr(proc_fs, "_read", lambda path: read.append(path) or original(path))
    processes = ProcFs()

    def asleep() -> dict[int, Thread]:
        """Returns the threads once two looks have found all of them asleep, and nothing that has run between."""
        before = None
        while True:
            threads = processes.threads(child.pid)
            assert threads is not None
            if threads is before and all(thread.sleeping for thread in threads.values()):
                return threads
            before = threads

    try:
        numbers = []
        for line in ("once", "again", "thread", "child"):
            child.stdin.write(f"{line}\n")
            child.stdin.flush()
            assert child.stdout.readline() == f"{line}\n"
            numbers.append((len(asleep()), asleep()[child.pid].used_ns))
        assert [number for number, _ in numbers] == [1, 1, 2, 3]
        assert numbers == sorted(set(numbers)), "each line takes processor time"
        read.clear()
        asleep()
        assert {path.rpartition("/")[2] for path in read} == {"stat"}
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
    assert processes.threads(child.pid) is None
