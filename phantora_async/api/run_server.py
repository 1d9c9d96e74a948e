"""The process that forks the processes of a session's runs. It has imported what they need.

Comes in: requests of `run_processes`, each with the descriptors of a run. Goes out: processes, and how they ended.
It ends with the session, and then ends the interpreters that the session's runs have shared.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NamedTuple, TextIO

import uvloop as _uvloop  # noqa: F401

from emu.contract.messages import ControlSocket
from phantora_async.api import child

# What a run needs. These are imports for their own sake.
from phantora_async.api import execution as _execution  # noqa: F401
from phantora_async.launch import warm_interpreters
from phantora_async.recording import recorder as _recorder  # noqa: F401
from phantora_async.report import text as _text  # noqa: F401
from phantora_async.session import Session as _Session  # noqa: F401


class Request(NamedTuple):
    """The descriptors of a run's process."""

    stdin: int
    stdout: int
    stderr: int
    result: int
    told: int
    """The socket on which the session is told of the process."""
    folder: int
    environment: int


def main(fileno: int, parent: int, folder: str) -> None:
    """The main function of the process. `fileno`: the socket of requests; `parent`: the session's process; `folder`:
    the folder of the session's interpreters.
    """
    end = socket.socket(fileno=fileno)
    end.set_inheritable(False)
    requests = ControlSocket(end)
    request = None
    try:
        gc.collect()
        gc.freeze()
        request = _Server(requests, parent).run()
    finally:
        if request is None:
            warm_interpreters.stop(Path(folder))
            shutil.rmtree(folder, ignore_errors=True)
    if request is not None:
        _run(request, Path(folder))


class _Server:
    def __init__(self, requests: ControlSocket, parent: int) -> None:
        self._requests = requests
        self._runs: dict[int, ControlSocket] = {}
        """The sockets on which the end of each process is told, by its process id."""
        self._wakeup, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._parent = os.pidfd_open(parent) if os.getppid() == parent else -1
        self._poll = select.poll()
        for descriptor in (requests.fileno(), self._wakeup, self._parent):
            if descriptor >= 0:
                self._poll.register(descriptor, select.POLLIN)

    def run(self) -> Request | None:
        """Serves until the session has ended; then returns None. In a forked process: returns its request."""
        while self._parent >= 0:
            ready = {descriptor for descriptor, _ in self._poll.poll()}
            if self._wakeup in ready:
                self._reap()
            if self._parent in ready:
                break
            if self._requests.fileno() in ready:
                try:
                    message, descriptors = self._requests.receive_with()
                except OSError:
                    break
                if message is None:
                    break
                if (request := self._fork(Request(*descriptors))) is not None:
                    return request
        return None

    def _fork(self, request: Request) -> Request | None:
        """Forks a process. Returns the request there, and None here."""
        try:
            pid = os.fork()
        except BlockingIOError:  # the session starts a process itself, and hears why that is impossible
            pid = -1
        if pid == 0:
            self._leave()
            return request
        told = ControlSocket(socket.socket(fileno=request.told))
        for descriptor in request:
            if descriptor != request.told:
                os.close(descriptor)
        if pid < 0:
            told.close()
            return None
        process = os.pidfd_open(pid)
        with contextlib.suppress(OSError):
            told.send_with([process], "forked", pid=pid)
        os.close(process)
        self._runs[pid] = told
        return None

    def _leave(self) -> None:
        """Gives up what is the server's, in a forked process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._requests.close()
        for told in self._runs.values():
            told.close()
        for descriptor in (self._wakeup, self._wake, self._parent):
            os.close(descriptor)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup, 4096)
        while self._runs:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            told = self._runs.pop(pid)
            with contextlib.suppress(OSError):
                told.send("ended", code=os.waitstatus_to_exitcode(status))
            told.close()


# ---- in the forked process -------------------------------------------------------------------------------------------


def _run(request: Request, folder: Path) -> None:
    """Does the run, after which the process ends as one of its own would."""
    server = os.getppid()
    os.setsid()
    os.fchdir(request.folder)
    with open(request.environment, encoding="utf-8") as file:
        file.seek(0)
        variables = json.load(file)
    os.environ.clear()
    os.environ.update(variables)
    time.tzset()
    for number, descriptor in enumerate((request.stdin, request.stdout, request.stderr)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.close(request.folder)
    os.close(request.told)
    sys.stdin, sys.stdout, sys.stderr = _input(), _output(sys.stdout, 1), _output(sys.stderr, 2)
    child.main(request.result, server, folder)


def _input() -> TextIO:
    return open(0, encoding=sys.stdin.encoding, closefd=False)


def _output(old: TextIO, number: int) -> TextIO:
    """The stream of a standard descriptor, as Python makes it at its start. `old`: the server's."""
    assert isinstance(old, io.TextIOWrapper), "Python has made it"
    raw = open(number, "wb", 0 if old.write_through else -1, closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(
        raw,
        encoding=old.encoding,
        errors=old.errors,
        line_buffering=number == 2 or os.isatty(number),
        write_through=old.write_through,
    )
