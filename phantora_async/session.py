"""One run from start to end: the coordinator here, the processes beside it, the terminal before it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from phantora_async import terminal
from phantora_async.config import Config
from phantora_async.coordinator import Coordinator, Outcome, RunSpec
from phantora_async.errors import EnvironmentUnusable, ExitCode, Interrupted, PhantoraError, RunFailed
from phantora_async.launcher import GRACE_S, Launcher, Runtime, make_runtime
from phantora_async.terminal import LogTail, Terminal

SETTLE_S = 0.5
"""After a rank failed: how long the others may take to fail of it, or to say why they did first."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a rank ended: one of code and signal is 0."""

    rank: int
    code: int
    signal: int

    @property
    def exit_code(self) -> int:
        return 128 + self.signal if self.signal else self.code

    def __str__(self) -> str:
        return (
            f"was ended by {signal.Signals(self.signal).name}" if self.signal else f"ended with exit code {self.code}"
        )


class Session:
    """Owns everything that a run starts. `run` returns when nothing of it is left."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._terminal = Terminal(status=config.progress)
        self._first_failure: Ended | None = None
        self._abort: asyncio.Future[PhantoraError] | None = None
        self._stopping = False

    async def run(self) -> Outcome:
        """Raises PhantoraError if the job does not end well."""
        runtime = make_runtime()
        coordinator = Coordinator(self._spec(runtime), self._terminal.status)
        launcher = Launcher(self._config, runtime)
        self._abort = asyncio.get_running_loop().create_future()
        tasks = [asyncio.create_task(terminal.follow(self._tails()))]
        try:
            with self._signals():
                await coordinator.serve()
                await launcher.start()
                watching = asyncio.create_task(self._watch(launcher, coordinator))
                tasks.append(watching)
                outcome = await self._outcome(coordinator, watching)
                self._stopping = True
                launcher.terminate()
                await asyncio.wait({watching}, timeout=GRACE_S + 10.0)
        finally:
            for task in reversed(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await launcher.close()
            self._terminal.close()
        self._raise_failure(outcome)
        return outcome

    def _spec(self, runtime: Runtime) -> RunSpec:
        config = self._config
        return RunSpec(
            socket=runtime.socket,
            cost_table=runtime.cost_table,
            servers=config.servers,
            gpu=config.gpu,
            cluster=config.cluster,
            host=config.host,
            host_mode=config.host_mode,
            clock=config.clock,
            speculation=config.speculation,
            progress=self._terminal.live,
            run_dir=config.run_dir,
        )

    def _tails(self) -> list[LogTail]:
        shown = sorted(self._config.shown_ranks)
        width = len(str(shown[-1])) if shown else 0
        prefixes = {rank: f"[rank {rank:>{width}}] " if len(shown) > 1 else "" for rank in shown}
        return [LogTail(self._config.log(rank), self._terminal, prefixes[rank]) for rank in shown]

    # ---- while it runs ---------------------------------------------------------------------------------------------
    async def _outcome(self, coordinator: Coordinator, watching: asyncio.Task[None]) -> Outcome:
        """The coordinator's word, unless something else ends the run before."""
        assert self._abort is not None, "a session runs once"
        finished = asyncio.create_task(coordinator.finished())
        # A fault of ours in a task must end the run, not leave it waiting.
        watching.add_done_callback(self._end_if_broken)
        either: set[asyncio.Future[Any]] = {finished, self._abort}
        done, _ = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if finished in done:
            return finished.result()
        finished.cancel()
        await asyncio.gather(finished, return_exceptions=True)
        raise self._abort.result()

    def _end_if_broken(self, watching: asyncio.Task[None]) -> None:
        if not watching.cancelled() and (error := watching.exception()) is not None:
            self._end(RunFailed(f"internal error: {type(error).__name__}: {error}", ExitCode.INTERNAL))

    async def _watch(self, launcher: Launcher, coordinator: Coordinator) -> None:
        """The forker's messages, to its end."""
        async for event in launcher.events():
            match event["event"]:
                case "exited":
                    self._note_exit(Ended(event["rank"], event["code"], event["signal"]))
                    coordinator.rank_exited(event["rank"], event["code"], event["signal"])
                case "failed":
                    self._end(EnvironmentUnusable(event["message"], event["hint"]))
                case "server_lost" | "lost":
                    self._end(self._lost(event))

    def _note_exit(self, ended: Ended) -> None:
        if ended.exit_code != 0 and self._first_failure is None and not self._stopping:
            self._first_failure = ended

    def _lost(self, event: dict[str, Any]) -> PhantoraError:
        log = self._config.run_dir / "forker.log"
        what = f"emulated server {event['server']}" if event["event"] == "server_lost" else "the forker"
        end = "\n".join(terminal.last_lines(log))
        return RunFailed(
            f"{what} ended unexpectedly{f' (see {log}):' if end else ''}\n{end}".rstrip(), ExitCode.INTERNAL
        )

    def _end(self, error: PhantoraError) -> None:
        if self._abort is not None and not self._abort.done() and not self._stopping:
            self._abort.set_result(error)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handled = (signal.SIGINT, signal.SIGTERM)
        for number in handled:
            loop.add_signal_handler(number, lambda: self._end(Interrupted("interrupted")))
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    # ---- at its end ------------------------------------------------------------------------------------------------
    def _raise_failure(self, outcome: Outcome) -> None:
        if outcome.exit_code == 0:
            return
        failed = self._first_failure
        if failed is None:
            raise RunFailed(str(outcome.failure), outcome.exit_code, f"logs: {self._config.run_dir}")
        server, log = self._config.server_of(failed.rank), self._config.log(failed.rank)
        lines = [f"rank {failed.rank} (server {server}) {failed}; its log is {log}"]
        if failed.rank not in self._config.shown_ranks:
            lines += [f"  | {line}" for line in terminal.last_lines(log)]
        raise RunFailed("\n".join(lines), failed.exit_code)
