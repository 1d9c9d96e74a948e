"""Requests that a server takes from a socket that any process of its script can reach, and how it forks processes for
them.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct

import pytest

from emu.start import processes, warm_children


def receive(said: bytes, *, descriptors: tuple[int, ...] = ()) -> warm_children.Request | None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        socket.send_fds(theirs, [said], list(descriptors))
        return warm_children.receive(ours)


def request(*texts: tuple[str, ...], numbers: tuple[int, ...] = ()) -> bytes:
    data = struct.pack(f"{1 + len(numbers)}I", len(numbers), *numbers)
    for group in texts:
        data += struct.pack("I", len(group)) + b"".join(text.encode() + b"\0" for text in group)
    return struct.pack("I", len(data)) + data


GOOD = request(("python", "x.py"), ("A=1",), ("/",), numbers=(1,))


def test_a_stub_is_understood() -> None:
    out, into = os.pipe()
    found = receive(GOOD, descriptors=(into,))
    assert found is not None
    assert (found.arguments, found.environment, found.folder) == (("python", "x.py"), {"A": "1"}, "/")
    found.close()
    os.close(out)
    os.close(into)


def test_a_server_without_descriptors_says_so() -> None:
    """The kernel drops what the server cannot take."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        socket.send_fds(theirs, [GOOD], [1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (first_free(), before[1]))
        try:
            assert warm_children.receive(ours) is None
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert struct.unpack("II", theirs.recv(8)) == (4, 0)


def first_free() -> int:
    descriptor = os.dup(0)
    os.close(descriptor)
    return descriptor


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff\xff" + bytes(100),
        b"\0",
        GOOD[:20],
        struct.pack("II", 4, 2**32 - 1),
        request(("python",), ("A=1",), ("/", "/"), numbers=(1,)),
        request(("python",), ("A=1",), ("/",), numbers=(1, 2)),
    ],
)
def test_what_is_no_stub_is_left(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may go on without a word, too: the server has other things to do. Descriptors that it sent are closed."""
    monkeypatch.setattr(warm_children, "PATIENCE_S", 0.05)
    out, into = os.pipe()
    assert receive(said, descriptors=(into,)) is None
    os.close(into)
    assert os.read(out, 1) == b"", "nobody has the other end any more"
    os.close(out)


def test_a_signal_that_comes_early_ends_a_forked_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The forking process takes SIGTERM itself. What is forked gets one before it could say that it does not."""
    taken: list[int] = []
    before, plain_fork = signal.signal(signal.SIGTERM, lambda number, _: taken.append(number)), os.fork

    def fork() -> int:
        pid = plain_fork()
        while pid == 0 and signal.SIGTERM not in signal.sigpending() and not taken:
            pass
        return pid

    monkeypatch.setattr(os, "fork", fork)
    try:
        pid = processes.fork((signal.SIGTERM,))
        if pid == 0:
            os._exit(0)
        os.kill(pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
        assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        assert not taken
    finally:
        signal.signal(signal.SIGTERM, before)
