"""Brings the machines of a run together: users start them (`--listen`), or a Ray cluster does (`--on ray`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from phantora_async.config import Config
from phantora_async.config.config import Listen
from phantora_async.errors import EnvironmentUnusable, InternalError, PhantoraError
from phantora_async.launch.launcher import LaunchPlan, hosted
from phantora_async.on_ray.cluster import RayCluster
from phantora_async.remote.machines import Machines, Streams, portions
from phantora_async.wording import compact, short


class Gathering:
    """Gathers the machines: ``open``, ``start``, ``watch``; ``close``."""

    def __init__(self, config: Config, listen: Listen, remark: Callable[[str], None]) -> None:
        """`remark` is called with remarks for the user."""
        self._config = config
        self._listen = listen
        self._remark = remark
        self._ray = RayCluster(config.run_dir / "ray.log") if listen.ray is not None else None
        self.machines = Machines(config.servers, listen.token)

    async def open(self, streams: Streams) -> None:
        """Opens the port for machines and asks for them. Raises EnvironmentUnusable."""
        listen, ray = self._listen, self._listen.ray
        servers = hosted(self._config)
        host = listen.host
        if self._ray is None or ray is None:
            self.machines.expect(portions(servers, listen.machines or 1))
        else:
            gpus = tuple(self._config.servers[server] for server in servers)
            found, placed = await self._ray.plan(ray.cluster, gpus, listen.machines, ray.environment)
            host = host or found
            self.machines.expect([[servers[place] for place in portion] for portion in placed])
        try:
            await self.machines.listen(streams, host, listen.port)
        except OSError as error:
            text = f"--listen {host}:{listen.port}: {error.strerror or error}"
            raise EnvironmentUnusable(text, "choose another port, or an address of this machine") from None
        if self._ray is None:
            self._ask_for_machines()
        else:
            given = self._config.options.python
            nodes = await self._ray.place(self.machines.address, listen.token, os.fspath(given) if given else "")
            self._remark(f"Ray runs the servers on {len(nodes)} machine{'s' * (len(nodes) != 1)}: {', '.join(nodes)}")

    async def start(self, plan: LaunchPlan) -> None:
        """Sends the job once all machines have joined. Without --compile-cache, compiled code is in a folder of each
        machine that is removed when the run ends.
        """
        variables = plan.variables if self._config.compile_cache is not None else {}
        await self.machines.start(
            plan.job.to_json(), device=plan.device_file_lines, variables=variables, folder=os.getcwd()
        )

    async def watch(self, end: Callable[[PhantoraError], None]) -> None:
        """Calls `end` when a machine cannot join."""
        if self._ray is not None:
            await self._ray.watch(end)

    async def lost(self, event: dict[str, Any]) -> InternalError:
        """The error for the user that follows from the event "machine_lost"."""
        servers: Sequence[int] = event["servers"]
        names = f"emulated server{'s' * (len(servers) != 1)} {compact(servers)}" if servers else "no server yet"
        why = event["why"]
        if self._ray is not None:
            why += f"; {await self._ray.why_lost(event['machine'])}"
        return InternalError(f"the machine at {event['address']} ({names}) was lost: {why}")

    async def close(self) -> None:
        if self._ray is not None:
            await self._ray.close()

    def _ask_for_machines(self) -> None:
        count, file = self._listen.machines or 1, self._listen.token_file
        self._remark(
            f"waiting for {count} machine{'s' * (count != 1)}; on each: phantora-async join {self.machines.address} "
            f"{f'--token-file {short(file)}' if file else '(with PHANTORA_TOKEN set)'}"
        )
