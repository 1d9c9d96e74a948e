"""One run from start to end: the coordinator here, the processes beside it, the terminal before it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from typing import Any

from phantora_async import terminal
from phantora_async.config import Config
from phantora_async.coordinator.coordinator import Coordinator, Outcome
from phantora_async.errors import EnvironmentUnusable, ExitCode, Interrupted, PhantoraError, RunFailed
from phantora_async.errors import RankDied
from phantora_async.launcher import GRACE_S, Launcher, Runtime, make_runtime
from phantora_async.run_spec import RunSpec
from phantora_async.terminal import LogTail, Terminal


class Session:
    """Owns everything that a run starts. `run` returns when nothing of it is left."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._terminal = Terminal(status=config.progress)
        self._abort: asyncio.Future[PhantoraError] | None = None
        self._stopping = False

    async def run(self) -> Outcome:
        """How the job ended, well or not. Raises PhantoraError if it could not be run to any end of its own."""
        runtime = make_runtime()
        coordinator = Coordinator(self._spec(runtime), self._terminal.status, notice=self._terminal.notice)
        launcher = Launcher(self._config, runtime)
        self._abort = asyncio.get_running_loop().create_future()
        tasks = [asyncio.create_task(terminal.follow(self._tails()))]
        try:
            with self._signals(coordinator):
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
            stall_timeout_s=config.stall_timeout_s,
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
                    coordinator.rank_exited(event["rank"], event["code"], event["signal"])
                case "failed":
                    self._end(EnvironmentUnusable(event["message"], event["hint"]))
                case "server_lost" | "lost":
                    self._end(self._lost(event))

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
    def _signals(self, coordinator: Coordinator) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handled = (signal.SIGINT, signal.SIGTERM)
        for number in handled:
            loop.add_signal_handler(number, lambda: self._interrupt(coordinator))
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    def _interrupt(self, coordinator: Coordinator) -> None:
        if not coordinator.interrupt():
            self._end(Interrupted("interrupted"))

    # ---- at its end ------------------------------------------------------------------------------------------------
    def error(self, outcome: Outcome) -> RunFailed | None:
        """What to tell of a run that did not end well."""
        failure = outcome.failure
        if failure is None:
            return None
        lines = [outcome.message]
        if isinstance(failure, RankDied) and failure.rank not in self._config.shown_ranks:
            log = self._config.log(failure.rank)
            if end := terminal.last_lines(log):
                lines += [f"the end of {log.name}:", *(f"  | {line}" for line in end)]
        return RunFailed("\n".join(lines), outcome.exit_code)
