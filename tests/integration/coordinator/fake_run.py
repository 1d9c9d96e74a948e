"""A coordinator over a real Unix socket, with ranks that follow a script."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from phantora_async.coordinator.coordinator import Coordinator
from phantora_async.coordinator.run_end import Outcome
from phantora_async.errors import RunFailure
from phantora_async.liveness.sleep_detector import Seen, Thread
from phantora_async.run_spec import RunSpec
from phantora_async.trace_request import TraceRequest
from profiles import load_cluster, load_gpu, load_host

from .fake_rank import FakeRank


class FakeProcesses:
    """All fake ranks live in this process, so /proc would say nothing: tests say who sleeps."""

    def __init__(self) -> None:
        self.awake = True
        self._at_ns = 0

    def look(self, pid: int) -> Seen:
        return Seen({1: Thread("python", True, not self.awake, 0)}, self._at_ns, self._at_ns)

    def now_ns(self) -> int:
        self._at_ns += 1_000_000_000
        return self._at_ns


class Run:
    def __init__(self, folder: Path, world_size: int) -> None:
        cluster = load_cluster("dgx-h200")
        self.spec = RunSpec(
            socket=folder / "socket",
            cost_table=folder / "costs",
            run_dir=folder,
            servers=(world_size,),
            gpu=load_gpu(cluster.gpu),
            cluster=cluster,
            host=load_host(cluster.host),
            host_mode="modelled",
        )
        self.world_size = world_size
        self.processes = FakeProcesses()
        self.watch: Callable[[str], object] = lambda line: None
        """Is given every status line."""
        self.show_every_s = 0.05
        self.notices: list[str] = []
        self.coordinator = self._make()

    def _make(self) -> Coordinator:
        return Coordinator(self.spec, self.processes)

    def limit(self, stall_timeout_s: float) -> None:
        """Sets the limit of a stall. Called before it plays."""
        self.spec = replace(self.spec, stall_timeout_s=stall_timeout_s)
        self.coordinator = self._make()

    def limit_memory(self, *, allocated: int = 0, reserved: int = 0, steps: int = 0) -> None:
        """Sets limits of memory. Called before it plays. `steps`: after which the run ends anyhow."""
        self.spec = replace(self.spec, most_allocated_nbytes=allocated, most_reserved_nbytes=reserved, steps=steps)
        self.coordinator = self._make()

    def limit_step(self, most_ns: int, *, steps: int) -> None:
        """Sets the limit of a step's time. Called before it plays."""
        self.spec = replace(self.spec, most_step_ns=most_ns, steps=steps)
        self.coordinator = self._make()

    def end_at(self, until_ns: int) -> None:
        """Ends the run at this instant. Called before it plays."""
        self.spec = replace(self.spec, until_ns=until_ns)
        self.coordinator = self._make()

    def keep_recording(self, folder: Path) -> None:
        """Keeps a recording. Called before it plays."""
        folder.mkdir()
        self.spec = replace(self.spec, record=folder)
        self.coordinator = self._make()

    def keep_trace(self, file: Path) -> None:
        """Keeps a trace of all ranks. Called before it plays."""
        self.spec = replace(self.spec, trace=TraceRequest(file, False, ((0, self.world_size - 1),)))
        self.coordinator = self._make()

    async def play(self, *programs: Callable[[FakeRank], Awaitable[None]]) -> Outcome:
        """Runs a program a rank to its end, tells of their exits, returns the outcome."""
        await self.coordinator.serve()
        async with AsyncExitStack() as stack:
            ranks = [
                await stack.enter_async_context(FakeRank(self.spec.socket, rank, self.world_size))
                for rank in range(self.world_size)
            ]

            async def one(rank: FakeRank, program: Callable[[FakeRank], Awaitable[None]]) -> None:
                try:
                    await program(rank)
                except (EOFError, ConnectionError):
                    return
                self.coordinator.rank_exited(rank.rank, 0, 0)

            async def show() -> None:
                while True:
                    await asyncio.sleep(self.show_every_s)
                    status = self.coordinator.status()
                    self.watch(status.line)
                    self.notices += filter(None, [status.notice])

            tasks = [asyncio.create_task(one(*pair)) for pair in zip(ranks, programs, strict=True)]
            showing = asyncio.create_task(show())
            outcome = await self.coordinator.finished()
            showing.cancel()
            self.coordinator.close()
            await asyncio.gather(*tasks)
            assert not showing.done() or showing.cancelled()
        return outcome


def failure_of(outcome: Outcome) -> RunFailure:
    assert outcome.failure is not None
    return outcome.failure
