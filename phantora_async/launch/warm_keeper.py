"""The process that keeps an interpreter warm: it gives each run a forker that the interpreter has forked.

It is a process beside the interpreter, so that what it does leaves no trace in the memory of later runs. It ends when
nobody has asked for ten minutes, when what the interpreter has imported changes, or when it is told to; runs that go on
then are left alone.

Comes in: connections of commands of the same user (`warm_interpreters`). Goes out: forkers, and how they ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emu.contract import process_setup
from emu.contract.messages import ControlSocket
from phantora_async.launch import forker_process, runtime

IDLE_S = 600.0
"""The seconds without a run after which the interpreter ends."""
_CREDENTIALS = struct.Struct("3i")
_States = dict[str, tuple[int, ...] | None]


def main(path: str, listener: int, environment: int, python: str) -> None:
    """The main function of the process. `path`: the path of the socket `listener`; `environment`: a file with the
    interpreter's environment in JSON.
    """
    process_setup.adopt_orphans()
    folder, owner = runtime.make_folder()
    try:
        with open(environment, encoding="utf-8") as file:
            variables = json.load(file)
        for name in forker_process.WITH_LIBRARIES:
            variables[name] = variables[name].replace(forker_process.LIBRARIES, str(folder / runtime.LIBRARIES), 1)
        _Keeper(Path(path), socket.socket(fileno=listener), Path(python), variables, folder).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        owner.close()


class _Run:
    """A command that has asked for a forker."""

    def __init__(self, connection: ControlSocket) -> None:
        self.connection = connection
        self.request: tuple[dict[str, Any], list[int]] | None = None
        """The request, until the interpreter gets it."""

    def drop_request(self) -> None:
        if self.request is not None:
            for descriptor in self.request[1]:
                os.close(descriptor)
            self.request = None


class _Keeper:
    def __init__(
        self, path: Path, listener: socket.socket, python: Path, environment: dict[str, str], folder: Path
    ) -> None:
        self._path, self._listener, self._python = path, listener, str(python)
        self._own_file = _place(path)
        self._waiting: list[_Run] = []
        """Runs whose request the interpreter has not got, in the order in which they came."""
        self._asked: _Run | None = None
        """The run whose request the interpreter has."""
        self._runs: dict[int, _Run] = {}
        """Runs whose forker is there, by its process id."""
        self._files: _States | None = None
        """The imported files and their state; None: the interpreter still imports."""
        self._served = 0
        self._idle_since_s = time.monotonic()
        self._ending = False
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._output = os.memfd_create("output")
        """The text that the interpreter printed while it imported; each run's log gets it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests = ControlSocket(ours)
        self._wakeup, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        with theirs:
            self._interpreter = subprocess.Popen(
                forker_process.arguments(python, theirs.fileno(), folder, "kept"),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env=environment,
                pass_fds=[theirs.fileno()],
                preexec_fn=process_setup.fix_addresses,
                start_new_session=True,
            ).pid
        os.chdir("/")
        self._watch(self._listener.fileno(), self._accept)
        self._watch(self._requests.fileno(), self._hear_interpreter)
        self._watch(self._wakeup, self._reap)

    def _watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        self._handlers[descriptor] = handler
        self._poll.register(descriptor, select.POLLIN)

    def _forget(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        del self._handlers[descriptor]

    def run(self) -> None:
        while not (self._ending and not self._runs and not self._waiting and self._asked is None):
            busy = self._runs or self._waiting or self._asked is not None
            left_s = IDLE_S - (time.monotonic() - self._idle_since_s)
            if not busy and left_s <= 0:
                self._retire()
                continue
            for descriptor, _ in self._poll.poll(None if busy else left_s * 1000):
                if handler := self._handlers.get(descriptor):
                    handler()

    def _retire(self) -> None:
        """Takes no further runs, and ends with the last one."""
        if self._ending:
            return
        self._ending = True
        if _place(self._path) == self._own_file:
            self._path.unlink(missing_ok=True)
        self._forget(self._listener.fileno())
        self._listener.close()
        for run in self._waiting:
            run.drop_request()
            self._close(run)
        self._waiting.clear()

    # ---- commands --------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        _, user, _ = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if user != os.geteuid():
            connection.close()
            return
        run = _Run(ControlSocket(connection))
        self._watch(run.connection.fileno(), lambda: self._hear_command(run))

    def _close(self, run: _Run) -> None:
        self._forget(run.connection.fileno())
        run.connection.close()

    def _hear_command(self, run: _Run) -> None:
        try:
            message, descriptors = run.connection.receive_with()
        except (OSError, ValueError):
            message, descriptors = None, []
        if message is None:  # the command has ended, or does not want the forker any more
            if run in self._waiting:
                self._waiting.remove(run)
                run.drop_request()
            if run not in self._runs.values() and run is not self._asked:
                self._close(run)
            else:
                self._poll.unregister(run.connection.fileno())
                self._handlers.pop(run.connection.fileno())
            return
        if message["event"] == "run" and not self._ending:
            run.request = message, descriptors
            self._waiting.append(run)
            self._serve()
            return
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            run.connection.send(
                "about",
                pids=[os.getpid(), self._interpreter],
                imported=self._files is not None,
                served=self._served,
                active=len(self._runs),
                idle_s=time.monotonic() - self._idle_since_s,
                python=self._python,
            )
        if message["event"] == "stop":
            self._retire()

    # ---- the interpreter -------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Gives the interpreter the next request, if it is ready and what it has imported is as it was."""
        if self._asked is not None or self._files is None or not self._waiting:
            return
        if any(_state(path) != state for path, state in self._files.items()):
            self._retire()
            return
        run = self._asked = self._waiting.pop(0)
        assert run.request is not None
        message, descriptors = run.request
        output = os.pread(self._output, os.fstat(self._output).st_size, 0)
        with contextlib.suppress(OSError):  # a full disk: it is a log
            os.write(descriptors[2], output)
        try:
            self._requests.send_with(descriptors, message["event"])
        except OSError:
            self._refused()
        run.drop_request()

    def _refused(self) -> None:
        run, self._asked = self._asked, None
        if run is not None:
            self._close_if_watched(run)
        self._idle_since_s = time.monotonic()
        self._serve()

    def _close_if_watched(self, run: _Run) -> None:
        descriptor = run.connection.fileno()
        if descriptor in self._handlers:
            self._forget(descriptor)
        run.connection.close()

    def _hear_interpreter(self) -> None:
        try:
            message, descriptors = self._requests.receive_with()
        except OSError:
            message, descriptors = None, []
        match message and message["event"]:
            case "imported":
                self._requests.send("look")
            case "files":
                with open(descriptors[0], encoding="utf-8") as file:
                    file.seek(0)
                    self._files = {path: _state(path) for path in json.load(file)}
                self._serve()
            case "forked":
                assert message is not None
                if self._asked is not None:
                    self._runs[message["pid"]], self._asked = self._asked, None
                    self._served += 1
                    with contextlib.suppress(OSError):
                        os.utime(self._path)
                self._reap()  # it may have ended before it was known
                self._serve()
            case "refused":
                self._refused()
            case None:
                self._forget(self._requests.fileno())
                self._retire()
                if self._asked is not None:
                    run, self._asked = self._asked, None
                    self._close_if_watched(run)

    def _reap(self) -> None:
        """Waits for children that have ended. Besides the interpreter they are forkers, and what forkers that were
        killed have left behind.
        """
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup, 4096)
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            if self._asked is not None and ended.si_pid != self._interpreter:
                return  # it may be the forker of which the interpreter is about to tell
            os.waitpid(ended.si_pid, 0)
            run = self._runs.pop(ended.si_pid, None)
            if run is None:
                continue
            self._kill_left()
            killed = ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
            with contextlib.suppress(OSError):
                run.connection.send("ended", signal=ended.si_status if killed else 0)
            self._close_if_watched(run)
            self._idle_since_s = time.monotonic()

    def _kill_left(self) -> None:
        """Kills the processes that became this one's children because their forker was killed."""
        known = {self._interpreter, *self._runs}
        for _ in range(1000):
            left = [pid for pid in _children() if pid not in known]
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            if not left:
                return
            time.sleep(0.005)


def _children() -> list[int]:
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in text.split()]


def _place(path: Path) -> tuple[int, ...] | None:
    """Returns numbers that say which file this is; its time of use changes. None if there is none."""
    found = _state(str(path))
    return found and found[:2]


def _state(path: str) -> tuple[int, ...] | None:
    """Returns numbers that differ if the file or folder does; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode
