"""A thread that only asks whether something has come is seen to sleep, by the library that ranks have loaded first."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from emu.contract import installed
from phantora_async.liveness.proc_fs import ProcFs
from phantora_async.liveness.sleep_detector import SleepDetector

HEAD = """
import array, ctypes, os, resource, select, socket, sys, time
us = socket.socket(fileno=int(sys.argv[1]))
us.setblocking(False)
number, c, room = us.fileno(), ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(8)
def asked(ask):
    try:
        return ask()
    except BlockingIOError:
        return None
"""
WAITS = {
    "recvmsg": "while (got := asked(lambda: us.recvmsg(8, 64))) is None: pass\ngot = got[0]",
    "recv": "while (got := asked(lambda: us.recv(8))) is None: pass",
    "read": "while (got := asked(lambda: os.read(number, 8))) is None: pass",
    "C": "while c.recv(number, room, 8, 0) < 0: assert ctypes.get_errno() == 11\ngot = room.value",
    "several": "pairs = [socket.socketpair() for _ in range(3)]\n"
    "for other, _ in pairs: other.setblocking(False)\n"
    "while (got := asked(lambda: us.recv(8))) is None: [asked(lambda: other.recv(8)) for other, _ in pairs]",
    "one that is ready and that nobody reads": "there, more = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
    "there.setblocking(False); assert asked(lambda: there.recv(8)) is None; more.send(b'1')\n"
    "while (got := asked(lambda: us.recv(8))) is None: pass",
}
WORKS = {
    "works": "began = time.thread_time()\n    while time.thread_time() < began + 0.0005: pass",
    "tells others": "asked(lambda: more.send(b'1')), asked(lambda: there.recv(8))",
}


def start(code: str, theirs: socket.socket) -> subprocess.Popen[bytes]:
    environment = os.environ | {installed.PRELOAD: str(installed.RECEIVE_LIBRARY)}
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + code, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        env=environment,
        stdout=subprocess.PIPE,
    )


@pytest.mark.parametrize("wait", WAITS)
def test_who_asks_over_and_over_sleeps_and_gets_what_comes(wait: str) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs, start(f"print(1, flush=True)\n{WAITS[wait]}\nprint(got, flush=True)", theirs) as child:
        assert child.stdout is not None
        child.stdout.readline()
        sleepers = SleepDetector(ProcFs())
        while not sleepers.look(0, child.pid, 50_000_000):
            assert child.poll() is None
        ours.send(b"hello")
        assert child.stdout.read() == b"b'hello'\n"
        assert child.wait() == 0


@pytest.mark.parametrize("work", WORKS)
def test_who_does_more_between_its_questions_is_not_held_up(work: str) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    code = f"""
there, more = socket.socketpair()
there.setblocking(False)
for _ in range(1500):
    assert asked(lambda: us.recv(8)) is None
    {WORKS[work]}
print(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw)
"""
    with ours, theirs, start(code, theirs) as child:
        assert child.stdout is not None
        assert int(child.stdout.read()) < 200, "it has slept hardly ever"
