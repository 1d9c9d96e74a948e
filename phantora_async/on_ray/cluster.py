"""The command's side of the process that uses Ray."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phantora_async.errors import EnvironmentUnusable, PhantoraError
from phantora_async.on_ray import messages

WHY_S = 30.0
"""The seconds that Ray may take to notice that an actor has ended."""
CLOSE_S = 20.0


class RayCluster:
    """Starts the process that uses Ray: ``plan``, ``place``, then ``watch``; ``close``."""

    def __init__(self, log: Path) -> None:
        """`log`: the file for Ray's output."""
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._lost: dict[int, asyncio.Future[str]] = {}
        """The reasons of losses, by number of the machine."""

    async def plan(
        self, cluster: str, servers: tuple[int, ...], machines: int | None, environment: dict[str, Any]
    ) -> tuple[str, list[list[int]]]:
        """Plans the run. Returns an address of this machine that nodes can reach, and the servers of each machine.
        Raises EnvironmentUnusable.
        """
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
                "from phantora_async.on_ray.actors import main; sys.exit(main())",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches only the command, which then closes it
            )
        self._say("plan", cluster=cluster, servers=servers, machines=machines, environment=environment)
        planned = await self._hear()
        return planned["host"], planned["servers"]

    async def place(self, address: str, token: str, python: str) -> list[str]:
        """Starts the machines, which will join at the address. Returns their addresses. Raises EnvironmentUnusable."""
        self._say("place", address=address, token=token, python=python)
        return list((await self._hear())["nodes"])

    async def watch(self, end: Callable[[PhantoraError], None]) -> None:
        """Watches the machines until the run ends. `end` is called if a machine could not join."""
        while True:
            try:
                message = await self._hear()
            except EnvironmentUnusable as error:
                end(error)
                return
            self._reason(message["machine"]).set_result(message["why"])

    async def why_lost(self, machine: int) -> str:
        """Ray's reason for the loss of a machine."""
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(self._reason(machine)), WHY_S)
        return f"Ray has not noticed it within {WHY_S:g} s"

    async def close(self) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), CLOSE_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    def _reason(self, machine: int) -> asyncio.Future[str]:
        return self._lost.setdefault(machine, asyncio.get_running_loop().create_future())

    def _say(self, event: str, **fields: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(messages.encode(event, **fields))

    async def _hear(self) -> dict[str, Any]:
        """Reads the next message of the process. Raises EnvironmentUnusable."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EnvironmentUnusable("the process that uses Ray has ended", details=f"its log is {self._log}")
        message = messages.decode(line)
        if message["event"] == "failed":
            raise EnvironmentUnusable(message["message"], message["hint"])
        return message
