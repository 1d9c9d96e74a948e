"""The forker as the command sees it: how it is asked for, what its end was, how it is killed.

Its interpreter is either started for one run (``OwnForker``) or kept warm between runs (``WarmForker``). The
interpreter does the same in both cases (`emu.start.interpreter`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from emu.contract import installed, process_setup
from emu.contract.messages import ControlSocket

LAST_S = 1.0
"""The seconds between the end of the forker's messages and its own end."""
KILLED_S = 10.0
"""The seconds that killed processes may take to end. One that waits for a device or a file server may never end."""
LIBRARIES = "@libraries@"
"""The word in the environment of a warm interpreter that stands for its folder of libraries."""
WITH_LIBRARIES = ("LD_LIBRARY_PATH", "TRITON_LIBCUDA_PATH")
"""The environment variables with that word, of which the first one begins with it."""
# The interpreter of the ranks loads `emu` from its location under another name: none of the packages beside it are put
# on that interpreter's path, and a package `emu` of the script's is not hidden.
BOOTSTRAP = """\
import sys
if sys.path[0] == "": del sys.path[0]
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("_phantora_emu", sys.argv[2] + "/__init__.py", submodule_search_locations=[sys.argv[2]])
sys.modules[spec.name] = module_from_spec(spec)
spec.loader.exec_module(sys.modules[spec.name])
from _phantora_emu.start.supported import accept_python
if accept_python(int(sys.argv[1])):
    from _phantora_emu.start.interpreter import main
    main()
"""


class ForkerRequest:
    """The descriptors that the forker of a run gets: see `emu.start.interpreter.DESCRIPTORS`."""

    def __init__(self, control: int, network: int, log: int, environment: Mapping[str, str]) -> None:
        """Takes over the descriptors."""
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.log = log
        self._descriptors = (control, network, log, folder, in_memory(json.dumps(dict(environment))))

    def send(self, end: ControlSocket, *others: int) -> None:
        """Sends the request to an interpreter. Raises OSError if that has ended."""
        end.send_with([*self._descriptors, *others], "run")

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)


def in_memory(text: str) -> int:
    """Opens a file in memory with this text. Its descriptor stands at the file's beginning."""
    file = os.memfd_create("text")
    with open(os.dup(file), "w", encoding="utf-8") as writing:
        writing.write(text)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def arguments(python: Path, requests: int, folder: Path, *more: str) -> list[str]:
    """The command that starts an interpreter of ranks. `requests`: its end of the socket of requests; `folder`: what it
    removes if whoever started it ends before a job has come.
    """
    return [str(python), "-u", "-c", BOOTSTRAP, str(requests), str(installed.EMU), str(folder), *more]


class Forker(Protocol):
    async def ended_by(self) -> int:
        """The signal that has ended the forker, whose messages have ended; 0 if none has."""

    def kill(self) -> None:
        """Sends SIGKILL to the forker, with which all other processes of the run end."""

    async def end(self, limit_s: float) -> list[int]:
        """Waits for the forker, which is about to end by itself. After `limit_s` seconds it is killed. Returns the
        number of the process if that has no effect.
        """


class OwnForker:
    """The forker whose interpreter was started for this run."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(
        cls, python: Path, request: ForkerRequest, environment: Mapping[str, str], folder: Path
    ) -> OwnForker:
        """Starts the interpreter and asks it for the forker. Raises OSError if no process can be started."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            process = await asyncio.create_subprocess_exec(
                *arguments(python, theirs.fileno(), folder),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=request.log,
                stderr=request.log,
                env=environment,
                pass_fds=[theirs.fileno()],
                preexec_fn=process_setup.fix_addresses,
                start_new_session=True,  # Ctrl-C reaches only this process, which then ends the others
            )
            with contextlib.suppress(BrokenPipeError):  # then the control socket ends, too
                request.send(ControlSocket(ours))
        return cls(process)

    async def ended_by(self) -> int:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), timeout=LAST_S)
        return max(0, -(self._process.returncode or 0))

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def end(self, limit_s: float) -> list[int]:
        return await end(self._process, limit_s)


async def end(process: asyncio.subprocess.Process, limit_s: float, killed_s: float = KILLED_S) -> list[int]:
    """Waits for a process that is about to end by itself. After `limit_s` seconds it is killed; if that has no effect
    within `killed_s`, its number is returned.
    """
    for wait_s in (limit_s, killed_s):
        try:
            await asyncio.wait_for(process.wait(), timeout=wait_s)
        except TimeoutError:
            process.kill()
        else:
            return []
    return [process.pid]


class WarmForker:
    """The forker that a warm interpreter has forked, or is about to fork.

    If the interpreter ends before it has done so, or will not do it, the run gets a forker of its own: `start_own`
    starts it.
    """

    def __init__(self, connection: ControlSocket, request: ForkerRequest, start_own: StartOwn) -> None:
        """Asks for the forker on a connection to the keeper. Raises OSError if the keeper has ended."""
        self._connection, self._request, self._start_own = connection, request, start_own
        self._process = -1
        """The descriptor of the forker's process, once it is there."""
        self._pid = 0
        self._signal = 0
        self._own: OwnForker | None = None
        self._killed = False
        self._gone = asyncio.Event()
        """Set when the forker has ended, or nobody can say any more."""
        theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            request.send(connection, theirs.fileno())
        self._told = ControlSocket(ours)
        """The socket on which the forker says that it is there. It closes when nobody is left who could."""
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        try:
            try:
                message, descriptors = await self._receive(self._told)
                self._told.close()
                if message is not None:
                    self._pid, self._process = int(message["pid"]), descriptors[0]
                if message is None and not self._killed:
                    self._own = await self._start_own()
            finally:
                self._request.close()  # so the control socket ends if there is no forker now
            if self._process >= 0:
                await self._follow_process()
        finally:
            self._connection.close()
            self._gone.set()

    async def _follow_process(self) -> None:
        message = None
        if self._killed:  # and the keeper has forgotten the request, which the interpreter had already
            self.kill()
        else:
            message, _ = await self._receive(self._connection)
        if message is None:  # the keeper has ended, or knows nothing of the forker
            await _readable(self._process)
        else:
            self._signal = int(message["signal"])

    async def _receive(self, end: ControlSocket) -> tuple[dict[str, Any] | None, list[int]]:
        await _readable(end.fileno())
        try:
            return end.receive_with()
        except ConnectionResetError:
            return None, []

    async def ended_by(self) -> int:
        if self._own is not None:
            return await self._own.ended_by()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._gone.wait(), timeout=LAST_S)
        return self._signal

    def kill(self) -> None:
        self._killed = True
        if self._own is not None:
            self._own.kill()
        elif self._process >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
        else:
            self._connection.close()  # the keeper forgets the request

    async def end(self, limit_s: float) -> list[int]:
        try:
            for wait_s in (limit_s, KILLED_S):
                if self._own is not None:
                    return await self._own.end(wait_s)
                try:
                    await asyncio.wait_for(self._gone.wait(), timeout=wait_s)
                except TimeoutError:
                    self.kill()
                else:
                    return []
            return [self._pid] if self._pid else []
        finally:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
            if self._process >= 0:
                os.close(self._process)


class StartOwn(Protocol):
    async def __call__(self) -> OwnForker: ...


async def _readable(descriptor: int) -> None:
    """Waits until there is something to read, or the other side has closed."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
