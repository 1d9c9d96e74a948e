"""Manages the machines that have joined a run: each starts some of its servers. For the session they are one
launcher.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Container, Sequence
from itertools import accumulate, pairwise
from typing import Any, Protocol, cast

from emu.contract import records
from phantora_async.ingest.channel import Channel
from phantora_async.remote import wire
from phantora_async.remote.port import Port
from phantora_async.remote.remote_processes import RemoteProcesses, pid_of


class NotAMachine(Exception):
    """A program of another version wants to join, or there is no room for the machine."""


class Streams(Protocol):
    """Takes the streams of ranks; implemented by the coordinator."""

    def stream(self, pid: int, ranks: Container[int]) -> Channel:
        """Opens a channel for a process, with this number, of one of `ranks` on another machine."""


class Machines:
    """Accepts machines with ``listen``, then has the methods of ``phantora_async.launch.launcher.Launcher``: start,
    events, terminate, tell_end, ask_memory, kill, close.

    The port's ``Passage``.
    """

    def __init__(self, servers: tuple[int, ...], token: str) -> None:
        """`servers`: the number of GPUs of each server of the run. Raises EnvironmentUnusable."""
        self._streams: Streams | None = None
        ends = accumulate(servers)
        self._ranks = [range(end - gpus, end) for end, gpus in zip(ends, servers, strict=True)]
        """The ranks of each server."""
        self._portions: list[list[int]] = []
        self._port = Port(token, self)
        self._machines: list[_Machine] = []
        self._all_joined = asyncio.Event()
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.processes = RemoteProcesses(lambda machine, pid: self._machines[machine].send("look", pid=pid))

    @property
    def address(self) -> str:
        return self._port.address

    def expect(self, portions: list[list[int]]) -> None:
        """Sets the servers of each machine, before ``listen``. A machine that names its seat gets the portion of that
        number.
        """
        self._portions = portions

    async def listen(self, streams: Streams, host: str, port: int) -> None:
        """Opens the port for machines. Raises OSError."""
        self._streams = streams
        await self._port.listen(host, port)

    async def start(self, job: dict[str, Any], **others: Any) -> None:
        """Sends the job to all machines, once enough have joined. `others`: further fields of the message."""
        await self._all_joined.wait()
        job = job | {"master_addr": self._machines[0].address}
        for number, machine in enumerate(self._machines):
            machine.send("job", job=job | {"hosted": machine.servers}, machine=number, **others)

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Yields the messages of all forkers, and "refused", "machine_joined" and "machine_lost"; the last one is
        "done".
        """
        left = len(self._portions)
        while left:
            event = await self._events.get()
            left -= event["event"] == "done"
            if event["event"] != "done" or not left:
                yield event

    def terminate(self) -> None:
        """See ``Launcher``."""
        for machine in self._machines:
            machine.send("terminate")

    def tell_end(self, rank: int) -> None:
        """See ``Launcher``."""
        for machine in self._machines:
            if rank in self._ranks_of(machine):
                machine.send("tell_end", rank=rank)

    def ask_memory(self, rank: int) -> None:
        """See ``Launcher``."""
        for machine in self._machines:
            if rank in self._ranks_of(machine):
                machine.send("ask_memory", rank=rank)

    def kill(self) -> None:
        """See ``Launcher``."""
        for machine in self._machines:
            machine.send("kill")

    async def close(self) -> list[int]:
        """Closes all connections. A machine then ends what it has started, and reports itself what does not end."""
        self._port.close()
        for machine in self._machines:
            machine.close()
        return []

    # ---- for the port and the machines -----------------------------------------------------------------------------

    def admit(self, opening: wire.Opening, address: str) -> asyncio.Protocol | None:
        if opening.kind == wire.RANK:
            if self._streams is None or opening.machine >= len(self._machines):
                self._port.refuse(address, "no such machine has joined")
                return None
            ranks = self._ranks_of(self._machines[opening.machine])
            return self._streams.stream(pid_of(opening.machine, opening.pid), ranks)
        return _Machine(self, address)

    def knows(self, address: str) -> bool:
        return any(machine.address == address for machine in self._machines)

    def refused(self, remark: str) -> None:
        self._events.put_nowait({"event": "refused", "remark": remark})

    def joined(self, machine: _Machine, hello: dict[str, Any]) -> None:
        """Gives the machine its servers. Raises NotAMachine."""
        if hello.get("version") != records.VERSION:
            raise NotAMachine("it has another version of phantora-async")
        taken = {other.seat for other in self._machines}
        free = [seat for seat in range(len(self._portions)) if seat not in taken]
        if not free:
            raise NotAMachine(f"all {len(self._portions)} machines have joined")
        machine.seat = hello["seat"] if hello["seat"] >= 0 else free[0]
        if machine.seat not in free:
            raise NotAMachine(f"there is no place {machine.seat} for it")
        machine.servers = self._portions[machine.seat]
        self._machines.append(machine)
        text = f"{machine.address} has joined ({len(self._machines)} of {len(self._portions)} machines)"
        self._events.put_nowait({"event": "machine_joined", "remark": text})
        if len(free) == 1:
            self._all_joined.set()

    def heard(self, machine: _Machine, message: dict[str, Any]) -> None:
        """Handles a message of the machine. Raises ValueError."""
        if "rank" in message and message["rank"] not in self._ranks_of(machine):
            raise ValueError(f"{message['event']} of rank {message['rank']}, which is not on this machine")
        if "server" in message and message["server"] not in machine.servers:
            raise ValueError(f"{message['event']} of server {message['server']}, which is not on this machine")
        if message["event"] == "threads":
            self.processes.answered(self._machines.index(machine), message["pid"], message["threads"])
        else:
            self._events.put_nowait(message)

    def _ranks_of(self, machine: _Machine) -> frozenset[int]:
        return frozenset(rank for server in machine.servers for rank in self._ranks[server])

    def lost(self, machine: _Machine, why: str) -> None:
        if machine in self._machines:
            where = {"address": machine.address, "servers": machine.servers, "machine": machine.seat}
            self._events.put_nowait({"event": "machine_lost", **where, "why": why})
        else:
            self._port.refuse(machine.address, why)


class _Machine(asyncio.Protocol):
    """The connection of one machine."""

    def __init__(self, machines: Machines, address: str) -> None:
        self._machines = machines
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._introduced = False
        self._over = False
        self.address = address
        self.seat = -1
        self.servers: list[int] = []
        """The numbers of the servers that it starts."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        try:
            *lines, rest = self._data.split(b"\n")
            if len(rest) > wire.LONGEST_LINE:
                raise ValueError("a message that is too long")
            self._data = rest
            for line in lines:
                self._take(wire.decode(bytes(line)))
        except NotAMachine as error:
            self.send("failed", message=str(error))
            self._lose(str(error))
        except (ValueError, TypeError) as error:
            self._lose(f"it sent an impossible message ({error})")

    def _take(self, message: dict[str, Any]) -> None:
        """Handles a message, the first of which introduces the machine. Raises ValueError or NotAMachine."""
        wire.check_machine_says(message)
        if self._introduced == (message["event"] == "hello"):
            raise ValueError(f"{message['event']} out of order")
        if self._introduced:
            self._over = self._over or message["event"] in ("done", "failed", "lost")
            self._machines.heard(self, message)
        else:
            self._machines.joined(self, message)
            self._introduced = True

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._over:
            self._lose(f"its connection broke ({exc})" if exc else "its connection closed")

    def _lose(self, why: str) -> None:
        self._over = True
        self._machines.lost(self, why)
        if self._transport is not None:
            self._transport.close()

    def send(self, event: str, **fields: Any) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(wire.encode(event, **fields))

    def close(self) -> None:
        self._over = True
        if self._transport is not None:
            self._transport.close()


def portions(servers: Sequence[int], machines: int) -> list[list[int]]:
    """Divides the servers into consecutive portions whose sizes differ by one at most."""
    ends = [len(servers) * number // machines for number in range(machines + 1)]
    return [list(servers[begin:end]) for begin, end in pairwise(ends)]
