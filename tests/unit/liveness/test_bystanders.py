"""Processes of a run that are no ranks, and those that wait for somebody to connect: with real processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from phantora_async.liveness.bystanders import Bystanders
from phantora_async.liveness.listening import listener
from phantora_async.liveness.proc_fs import ProcFs
from phantora_async.liveness.sleep_detector import Thread

HEAD = """
import asyncio, ctypes, os, select, socket, sys, threading
def listens(family, address):
    made = socket.socket(family)
    made.bind(address)
    made.listen()
    return made
tcp = listens(socket.AF_INET, ("127.0.0.1", 0))
local = listens(socket.AF_UNIX, "\\0phantora-" + str(os.getpid()))
one, other = socket.socketpair()
def name(text): ctypes.CDLL(None).prctl(15, text)
def ready(): print(1, flush=True)
"""
POLLS = "poll = select.poll(); poll.register(one); poll.modify(one, select.POLLIN); poll.register({}, select.POLLIN)\n"
EPOLL = "poll = select.epoll(); poll.register(one, select.EPOLLIN); poll.register({}, select.EPOLLIN)\n"
ASYNCIO = (
    "async def main():\n    await asyncio.start_server(print, sock=tcp)\n"
    "    ready()\n    await asyncio.Event().wait()\n"
)
LISTENING = {
    "accept": "ready(); tcp.accept()",
    "poll": POLLS.format("tcp") + "ready(); poll.poll()",
    "epoll": EPOLL.format("tcp") + "ready(); poll.poll()",
    "select": "ready(); select.select([one, tcp], [], [])",
    "asyncio": ASYNCIO + "asyncio.run(main())",
    "a thread that wakes up now and then": EPOLL.format("tcp") + "def loop():\n    while True: poll.poll(1.0)\n"
    "threading.Thread(target=loop, daemon=True).start(); ready(); threading.Event().wait()",
    "a thread": "threading.Thread(target=tcp.accept, daemon=True).start(); ready(); threading.Event().wait()",
}
OF_RANKS_ALONE = {"local": "ready(); local.accept()", "local, by epoll": EPOLL.format("local") + "ready(); poll.poll()"}
NOT_LISTENING = {
    "receives": "ready(); one.recv(1)",
    "waits for others": EPOLL.format("other") + "ready(); poll.poll()",
    "sleeps": "ready(); threading.Event().wait()",
    "a store's server": "def serve():\n    name(b'pt_tcpstore_uv')\n    ready()\n    tcp.accept()\n"
    "threading.Thread(target=serve, daemon=True).start()\none.recv(1)",
    "a thread like gloo's": EPOLL.format("tcp") + "def loop():\n    while True: poll.poll(0.01)\n"
    "threading.Thread(target=loop, daemon=True).start(); ready(); one.recv(1)",
    "a thread on a local one": "threading.Thread(target=local.accept, daemon=True).start(); ready(); one.recv(1)",
}


def start(code: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen([sys.executable, "-c", HEAD + code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def asleep(pid: int) -> None:
    """Returns when all threads of the process sleep, at two looks without work between."""
    before: dict[int, Thread] | None = None
    while True:
        seen = ProcFs().threads(pid)
        assert seen is not None
        if seen == before and all(thread.sleeping for thread in seen.values()):
            return
        before = seen


@pytest.mark.parametrize(
    ("code", "as_other", "as_rank"),
    [
        *((code, True, True) for code in LISTENING.values()),
        *((code, False, True) for code in OF_RANKS_ALONE.values()),
        *((code, False, False) for code in NOT_LISTENING.values()),
    ],
    ids=[*LISTENING, *OF_RANKS_ALONE, *NOT_LISTENING],
)
def test_who_waits_for_somebody_to_connect(code: str, as_other: bool, as_rank: bool) -> None:
    with start(code) as child:
        try:
            asleep(child.pid)
            found = [listener(child.pid, is_rank=is_rank) for is_rank in (False, True)]
            assert [one is not None for one in found] == [as_other, as_rank]
        finally:
            child.kill()


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


FORKER = """
import subprocess, sys
children = [subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) for code in sys.argv[1:]]
print(*(child.pid for child in children), flush=True)
sys.stdin.read()
for child in children: child.kill()
"""
SLEEPS, WORKS = "import sys; sys.stdin.read()", "while True: pass"


@pytest.mark.parametrize(("other", "works"), [(SLEEPS, False), (WORKS, True)])
def test_a_process_beside_the_ranks_is_seen_to_work(other: str, works: bool) -> None:
    """The rank works in both cases, which is its own affair."""
    forker = subprocess.Popen(
        [sys.executable, "-c", FORKER, WORKS, other], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert forker.stdout is not None
    rank, beside = map(int, forker.stdout.readline().split())
    clock = Clock()
    try:
        bystanders = Bystanders({0: rank}, lambda: set(ProcFs().threads(rank) or ()), monotonic=clock)
        assert bystanders.work(), "nobody knows yet"
        if not works:
            asleep(beside)
        answers = []
        for _ in range(3):
            clock.now_s += 1000.0 if not works else 1.0
            answers.append(bystanders.work())
        assert answers[-1] is works
        assert bystanders.listener() is None
    finally:
        forker.communicate()


def test_ranks_of_another_machine_have_no_bystanders_here() -> None:
    clock = Clock()
    bystanders = Bystanders({0: 1 << 33}, set, monotonic=clock)
    assert bystanders.work(), "nobody knows yet"
    clock.now_s = 2.0
    assert not bystanders.work()
    assert bystanders.listener() is None
