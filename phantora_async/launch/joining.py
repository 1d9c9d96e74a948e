"""A machine that joins a run: it starts the servers that the coordinator gives it, and connects their ranks with it.

Ranks connect to a Unix socket here, as they do on the coordinator's machine. Each of these connections is continued by
a TCP connection of its own. So ranks know neither the token nor the coordinator's address. The coordinator's job, which
names what is executed here, is read only after the coordinator has shown that it holds the token (``remote.reach``).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from emu.contract import records
from emu.contract.job import Job
from phantora_async import compile_cache
from phantora_async.errors import MachineFailed
from phantora_async.launch import limits
from phantora_async.launch.launcher import Launcher, LaunchPlan, not_ended
from phantora_async.launch.runtime import HOOK, Runtime, make_runtime
from phantora_async.liveness.proc_fs import ProcFs
from phantora_async.remote import keys, wire
from phantora_async.remote.reach import Streams, reach

_CREDENTIALS = struct.Struct("3i")
PIECE_NBYTES = 1 << 18
RELAY_WAIT_S = 30.0
"""The seconds for which a rank's connection is tried again: strangers may have taken the coordinator's places."""
IMPOSSIBLE = "the coordinator sent an impossible message"


class Joined:
    """One run, on this machine. ``run`` returns when the run has ended."""

    def __init__(
        self, address: str, token: str, python: Path, wait_s: float, seat: int = -1, folder: Path | None = None
    ) -> None:
        """`wait_s`: how long to wait for a coordinator that does not listen yet. `seat`: which servers to take, -1 for
        any. `folder`: what is the coordinator's working directory here, if it is not at the same path. Raises
        PhantoraError.
        """
        self._host, self._port = wire.address(address)
        self._context = keys.context_of(token, keys.MACHINE)
        self._python = python
        self._wait_s = wait_s
        self._seat = seat
        self._folder = folder
        self._number = 0
        self._relays: set[asyncio.Task[None]] = set()
        self._processes = ProcFs()

    async def run(self, tell: Callable[[str], None]) -> None:
        """`tell` is called with remarks for the user. Raises PhantoraError."""
        reader, writer = await self._reach(self._wait_s, wire.LONGEST_LINE)
        try:
            writer.write(wire.opening(wire.MACHINE))
            hello = {"version": records.VERSION, "name": socket.gethostname(), "seat": self._seat}
            writer.write(wire.encode("hello", **hello))
            first = await _receive(reader)
            if first is None:
                raise MachineFailed("the coordinator closed the connection")
            try:
                if first["event"] == "failed":
                    raise MachineFailed(f"the coordinator refuses this machine: {first['message']}")
                tell(f"this machine runs servers {', '.join(map(str, first['job']['hosted']))}")
                self._number = int(first["machine"])
            except (KeyError, TypeError, ValueError):
                raise MachineFailed(IMPOSSIBLE) from None
            await self._run(first, reader, writer, tell)
        finally:
            writer.close()

    async def _reach(self, wait_s: float, limit: int) -> Streams:
        return await reach(self._host, self._port, self._context, wait_s, limit)

    async def _run(
        self,
        message: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        tell: Callable[[str], None],
    ) -> None:
        runtime = make_runtime()
        try:
            plan = self._plan(message, runtime, tell)
        except (OSError, ValueError, KeyError, TypeError) as error:
            runtime.remove()
            reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else f"{IMPOSSIBLE} ({error})"
            writer.write(wire.encode("failed", message=f"{socket.gethostname()}: {reason}", hint=""))
            await writer.drain()
            raise MachineFailed(reason) from None
        launcher = Launcher(plan, runtime)
        listener = await asyncio.start_unix_server(self._relay, str(runtime.socket), limit=PIECE_NBYTES)
        tasks: list[asyncio.Task[None]] = []
        loop = asyncio.get_running_loop()
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, writer.close)
            await launcher.start()
            tasks = [
                asyncio.create_task(self._obey(reader, writer, launcher)),
                asyncio.create_task(_report(launcher, writer)),
            ]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0] not in done:
                await asyncio.wait(tasks[:1])  # the coordinator closes the connection when it has the report
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in (*tasks, *self._relays):
                task.cancel()
            await asyncio.gather(*tasks, *self._relays, return_exceptions=True)
            listener.close()
            if left := await launcher.close():
                tell(not_ended(left))

    def _plan(self, message: dict[str, Any], runtime: Runtime, tell: Callable[[str], None]) -> LaunchPlan:
        """The coordinator's job with this machine's paths. The working directory, the script and the folder of compiled
        code are at the same paths on all machines, if this one has no folder of its own.
        """
        os.chdir(self._folder or message["folder"])
        run_dir = Path(message["job"]["run_dir"])
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        job = dataclasses.replace(
            Job.parse(message["job"]),
            runtime_dir=str(runtime.folder),
            hook=str(HOOK),
            device_file=str(runtime.folder / "device.txt"),
            socket=str(runtime.socket),
            cost_table="",  # ranks ask for costs
        )
        script = Path(job.script)
        if self._folder is not None and script.is_relative_to(message["folder"]):
            job = dataclasses.replace(job, script=str(self._folder / script.relative_to(message["folder"])))
        limits.check(sum(job.servers))
        folder = runtime.ranks / "compiled"
        ours = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TRITON_CACHE_DIR": str(folder / "triton")}
        variables = {str(name): str(value) for name, value in message["variables"].items()}
        for cache in map(Path, variables.values()):
            if reason := compile_cache.why_unusable(cache):
                tell(f"torch.compile starts from nothing on this machine: {cache} cannot be used ({reason})")
                variables = {}
                break
        variables = variables or ours
        return LaunchPlan(job, self._python, tuple(message["device"]), variables, f"forker{self._number}.log")

    # ---- the control connection ------------------------------------------------------------------------------------

    async def _obey(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, launcher: Launcher) -> None:
        """Follows the coordinator's messages until it has gone."""
        while (message := await _receive(reader)) is not None:
            try:
                match message["event"]:
                    case "terminate":
                        launcher.terminate()
                    case "tell_end":
                        launcher.tell_end(int(message["rank"]))
                    case "ask_memory":
                        launcher.ask_memory(int(message["rank"]))
                    case "kill":
                        launcher.kill()
                    case "look":
                        pid = int(message["pid"])
                        writer.write(wire.encode("threads", pid=pid, threads=self._look(pid)))
            except (KeyError, TypeError, ValueError, StopIteration):
                raise MachineFailed(IMPOSSIBLE) from None

    def _look(self, pid: int) -> dict[int, list[Any]] | None:
        """Looks at the threads of a rank, which is a process below this one."""
        try:
            known = psutil.Process() in psutil.Process(pid).parents()
        except psutil.Error:
            return None
        threads = self._processes.threads(pid) if known else None
        return None if threads is None else {number: list(dataclasses.astuple(one)) for number, one in threads.items()}

    # ---- streams of ranks ------------------------------------------------------------------------------------------

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relays the connection of one rank over TCP."""
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        task.add_done_callback(self._relays.discard)
        credentials = writer.get_extra_info("socket").getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
        )
        pid, _, _ = _CREDENTIALS.unpack(credentials)
        try:
            far_reader, far_writer = await self._reach(RELAY_WAIT_S, PIECE_NBYTES)
        except MachineFailed:
            writer.close()  # the rank ends itself
            return
        far_writer.write(wire.opening(wire.RANK, self._number, pid))
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            writer.close()
            far_writer.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copies until one of the sides closes."""
    with contextlib.suppress(OSError):
        while piece := await source.read(PIECE_NBYTES):
            target.write(piece)
            await target.drain()
        target.write_eof()


async def _report(launcher: Launcher, writer: asyncio.StreamWriter) -> None:
    """The forker's messages, to its end."""
    async for event in launcher.events():
        fields = {name: value for name, value in event.items() if name != "event"}
        writer.write(wire.encode(event["event"], **fields))


async def _receive(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next message; None if the coordinator has gone. Raises MachineFailed."""
    try:
        line = await reader.readline()
    except OSError:
        return None
    except ValueError:
        raise MachineFailed("the coordinator sent a message that is too long") from None
    if not line.endswith(b"\n"):
        return None
    try:
        return wire.decode(line)
    except ValueError:
        raise MachineFailed(IMPOSSIBLE) from None
