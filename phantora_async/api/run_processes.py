"""The processes of the runs of one session: a sweep, the jobs of a file, tests on emulated GPUs.

A session has a process that has imported this package, and forks a process for each run (`run_server`): imports are
done once. It also has a folder of its own for the interpreters that have imported PyTorch, which its runs share. Both
end with the session. What a run inherits is what it would inherit from a process of its own; a run for which that is
not certain gets one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from emu.contract.messages import ControlSocket
from phantora_async.launch import forker_process, warm_interpreters

BOOTSTRAP = """\
import sys
if sys.path[0] == "": del sys.path[0]
sys.path.append(sys.argv[1])
from phantora_async.api.run_server import main
main(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
"""
END_S = 30.0
"""The seconds that the server may take to end."""
_AT_START = re.compile(r"PYTHON.*|LD_.*|GLIBC_.*|MALLOC_.*|LC_.*|LANG|LANGUAGE|TZ|OPENSSL_.*|(OPENBLAS|OMP|MKL)_.*")
"""Environment variables that a process looks at when it starts, or when it imports modules."""


class RunProcesses:
    """A context. Its server starts with the first run, and ends when the context does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._end: ControlSocket | None = None
        self._folder: Path | None = None
        self._attributes: dict[str, Any] = {}
        self._environment: dict[str, str] = {}

    def __enter__(self) -> RunProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the server, and the interpreters that it has kept."""
        with self._lock:
            server, end, self._server, self._end = self._server, self._end, None, None
        if end is not None:
            end.close()
        if server is not None:
            try:
                server.wait(END_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        if self._folder is not None and self._folder.exists():  # the server was killed
            warm_interpreters.stop(self._folder)
            shutil.rmtree(self._folder, ignore_errors=True)

    def interpreters(self) -> Path | None:
        """The folder of the interpreters that runs of this session share; None: there is none."""
        return self._folder

    def start(
        self, environment: Mapping[str, str], stdin: int, stdout: int, stderr: int, result: int
    ) -> ForkedProcess | None:
        """Forks the process of a run with these descriptors. Returns None if it must be one of its own."""
        with self._lock:
            if self._server is None and self._folder is None:
                self._start_server()
            if self._end is None or not self._inherits(environment):
                return None
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            variables = forker_process.in_memory(json.dumps(dict(environment)))
            try:
                self._end.send_with([stdin, stdout, stderr, result, theirs.fileno(), folder, variables], "run")
            except OSError:
                ours.close()
                return None
            finally:
                theirs.close()
                os.close(folder)
                os.close(variables)
        return ForkedProcess.awaited(ControlSocket(ours))

    def _inherits(self, environment: Mapping[str, str]) -> bool:
        """Returns true if a fork of the server is what a new process of this one would be."""
        names = {name for name in {*environment, *self._environment} if _AT_START.fullmatch(name)}
        same = all(environment.get(name) == self._environment.get(name) for name in names)
        return same and warm_interpreters.attributes() == self._attributes

    def _start_server(self) -> None:
        self._folder = warm_interpreters.folder_of_session()
        if self._folder is None:
            return
        self._environment, self._attributes = dict(os.environ), warm_interpreters.attributes()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    BOOTSTRAP,
                    str(Path(__file__).parents[2]),
                    str(theirs.fileno()),
                    str(os.getpid()),
                    str(self._folder),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._end = ControlSocket(ours)


class ForkedProcess:
    """A process that the server has forked, with the methods of ``subprocess.Popen`` that a run needs."""

    def __init__(self, end: ControlSocket, process: int) -> None:
        self._end = end
        self._process = process
        """A descriptor of the process, by which no other one is ever meant."""
        self.returncode: int | None = None

    @classmethod
    def awaited(cls, end: ControlSocket) -> ForkedProcess | None:
        """Waits until the server says that the process is there. Returns None if it has ended, or cannot fork."""
        try:
            message, descriptors = end.receive_with()
        except OSError:
            message, descriptors = None, []
        if message is None:
            end.close()
            return None
        return cls(end, descriptors[0])

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code, negative for a signal. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            poll, until_s = select.poll(), None if timeout is None else time.monotonic() + timeout
            poll.register(self._end.fileno(), select.POLLIN)
            if not poll.poll(None if until_s is None else max(0.0, until_s - time.monotonic()) * 1000):
                assert timeout is not None, "a poll without a limit ends with an event"
                raise subprocess.TimeoutExpired("the process of a run", timeout)
            try:
                message = self._end.receive()
            except OSError:
                message = None
            # The server ends before its children only if it is killed; they then get SIGTERM.
            self.returncode = -signal.SIGTERM if message is None else int(message["code"])
            self._end.close()
            os.close(self._process)
        return self.returncode
