"""One run from start to end: the coordinator in this process, the processes of the ranks, the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from emu.contract import isolation
from phantora_async import compile_cache, terminal
from phantora_async.config import Config
from phantora_async.coordinator.coordinator import Coordinator
from phantora_async.coordinator.run_end import Outcome
from phantora_async.entrance import MOST_VISITORS
from phantora_async.errors import (
    EnvironmentUnusable,
    InternalError,
    Interrupted,
    LauncherFailed,
    PhantoraError,
    RankDied,
)
from phantora_async.kernel_times import KernelTimes
from phantora_async.known import notes
from phantora_async.known.notes import Notes
from phantora_async.launch import limits, warm_interpreters
from phantora_async.launch.launcher import GRACE_S, Launcher, not_ended, plan_of
from phantora_async.launch.runtime import Runtime, make_runtime
from phantora_async.liveness.memory_kills import MemoryKills
from phantora_async.run_spec import RunSpec
from phantora_async.terminal import LogTail, Terminal
from phantora_async.wording import short

if TYPE_CHECKING:
    from phantora_async.gpu_profile.on_demand import OnDemand
    from phantora_async.launch.gathering import Gathering
    from phantora_async.pages.live_page import LivePage
    from phantora_async.remote.machines import Machines

T = TypeVar("T")
SHOW_EVERY_S = 0.5
"""The seconds between two looks at the status."""
Beside = Callable[[Path, Callable[[int], int | None]], Coroutine[Any, Any, None]]
"""Work that is done while the ranks run. It gets the folder in which ranks write their stacks, and a function that
gives a rank's process id.
"""
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
ONE_INTERRUPT_S = 1.0
"""Signals within this time are one interrupt: `timeout` sends one to the command and one to its process group."""
LAST_EVENTS_S = GRACE_S + 10.0
"""The seconds that the run's processes have to end after the run's end."""


class Session:
    """Owns everything that a run starts. When ``run`` returns, all of it has ended."""

    def __init__(self, config: Config, beside: Beside | None = None, interpreters: Path | None = None) -> None:
        """`interpreters`: the folder of the warm interpreters that a run uses without `--warm`."""
        self._config = config
        self._interpreters = warm_interpreters.folder() if config.warm else interpreters
        self._beside = beside
        self._terminal = Terminal(status=config.options.progress)
        self._memory_kills = MemoryKills()
        self._abort: asyncio.Future[PhantoraError] | None = None
        self._stopping = False
        self._interrupted_at_s: float | None = None
        self._on_demand: OnDemand | None = None
        self._gathering: Gathering | None = None
        self.notes: Notes | None = None
        """The notes of the run's processes on its inputs; None: nothing was to be noted, or the run failed."""
        self._visible: tuple[str, ...] | None = None
        self._own: tuple[str, ...] = ()
        self._unnoted = "the forker did not begin to note inputs"
        self.versions: dict[str, str] = {}
        """Versions of torch and Python that the ranks run with; empty until the forker has told them."""

    async def run(self) -> Outcome:
        """Runs the script and returns how its run ended, well or not. Raises PhantoraError if it could not be run to an
        end of its own.
        """
        entrances = 1 + (self._config.listen is not None) + (self._config.ui is not None)
        limits.check(self._config.processes, MOST_VISITORS * entrances)
        with self._measuring():
            return await self._run()

    async def _run(self) -> Outcome:
        runtime = make_runtime()
        try:
            return await self._run_in(runtime)
        finally:
            runtime.remove()

    async def _run_in(self, runtime: Runtime) -> Outcome:
        launcher: Launcher | Machines
        listen, gathering = self._config.listen, None
        if listen is None:
            coordinator = Coordinator(self._spec(runtime))
            launcher = Launcher(plan_of(self._config, runtime, self._interpreters), runtime)
        else:
            from phantora_async.launch.gathering import Gathering  # with what other machines need: TLS, for example

            self._gathering = gathering = Gathering(self._config, listen, self._terminal.remark)
            launcher = gathering.machines
            coordinator = Coordinator(self._spec(runtime), launcher.processes)
        self._abort = asyncio.get_running_loop().create_future()
        page: LivePage | None = None
        ended, report = "the run was ended", None
        # Signals are taken from here on: whatever has been started is ended below, however the run ends.
        with self._signals(coordinator, launcher):
            tasks = [asyncio.create_task(terminal.follow(self._tails()))]
            try:
                # The coordinator listens, and all that shows the run is there, before the first rank starts.
                await coordinator.serve()
                page = await self._page()
                if page is not None:
                    tasks.append(self._task(page.show(coordinator)))
                tasks.append(self._task(self._show(coordinator)))
                if self._beside is not None:
                    tasks.append(
                        self._task(
                            self._beside(Path(isolation.ranks_folder(str(runtime.socket.parent))), coordinator.pid)
                        )
                    )
                # Ranks on this machine start now. Other machines join at a port, and get the job once enough have come.
                if isinstance(launcher, Launcher):
                    await launcher.start()
                if gathering is not None:
                    await self._unless_interrupted(gathering.open(coordinator))
                    tasks.append(self._task(gathering.start(plan_of(self._config, runtime))))
                    tasks.append(self._task(gathering.watch(self._end)))
                events = self._task(self._take_events(launcher, coordinator))
                tasks += [events, self._task(self._tell_ends(launcher, coordinator))]
                tasks.append(self._task(self._ask_memory(launcher, coordinator)))
                outcome = await self._outcome(coordinator)
                # The forker ends the ranks, and then itself: it gets time for that before it is killed below.
                self._stopping = True
                launcher.terminate()
                await asyncio.wait({events}, timeout=LAST_EVENTS_S)
                if self._config.known:  # before the folder with the notes is removed
                    self.notes = notes.read(runtime.inputs, self._own, self._visible, self._unnoted)
                ended, report = "the run has ended", outcome.report
            except PhantoraError as error:
                ended = f"the run has ended: {error.text}"
                raise
            finally:
                # In reverse order: what was started last depends on what was started before it.
                for task in reversed(tasks):
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                # The page gets the last state before the processes are waited for, which may take seconds.
                if page is not None:
                    await page.close(report, ended)
                if left := await launcher.close():
                    self._terminal.remark(not_ended(left))
                if gathering is not None:
                    await gathering.close()
                self._terminal.close()
            self._add_log(outcome)
            return outcome

    async def _page(self) -> LivePage | None:
        """Opens the live page, if the user asked for one."""
        config = self._config
        if config.ui is None:
            return None
        from phantora_async.pages.live_page import LivePage  # aiohttp takes long to import

        ui = config.ui
        page = LivePage(ui.listening, ui.token, config.script, config.arguments, self._terminal.remark)
        await page.start()
        self._terminal.remark(f"live page: {page.url}")
        return page

    @contextlib.contextmanager
    def _measuring(self) -> Iterator[None]:
        """Starts the process that uses the GPU, if `--measure` is given. Without a GPU the user is told and the run
        goes on.
        """
        if not self._config.options.measure:
            yield
            return
        from phantora_async.gpu_profile.bench import gpu_bench
        from phantora_async.gpu_profile.on_demand import OnDemand

        with gpu_bench(self._config.python) as bench:
            try:
                self._on_demand = OnDemand(
                    bench, compile_cache.default_folder() / "kernel-times", self._terminal.remark
                )
            except EnvironmentUnusable as error:
                self._terminal.remark(f"--measure: {error.text}: kernels without measured times are estimated")
            try:
                yield
            finally:
                if self._on_demand is not None:
                    self._on_demand.save()

    def _kernel_times(self) -> tuple[KernelTimes, ...]:
        """The tables of measured kernel times, those of the emulated GPU first."""
        found = self._config.kernel_times
        if self._on_demand is not None:
            found += (KernelTimes(self._on_demand.file, self._on_demand.times),)
        return tuple(sorted(found, key=lambda times: times.carried_over(self._config.gpu)))

    def _spec(self, runtime: Runtime) -> RunSpec:
        config = self._config
        compiled = config.compile_cache or runtime.ranks / "compiled"
        return config.view(
            RunSpec,
            socket=runtime.socket,
            cost_table=runtime.cost_table,
            run_dir=config.run_dir,
            kernel_times=self._kernel_times(),
            measure=self._on_demand.measure if self._on_demand is not None else None,
            progress=self._terminal.live,
            compile_locks=compile_cache.locks(compiled, config.gpu),
            kernel_locks=compile_cache.kernel_locks(compiled),
        )

    def _tails(self) -> list[LogTail]:
        config = self._config
        shown, kind = sorted(config.shown_ranks), "rank"
        if config.launcher:  # the ranks of a server have one log
            shown, kind = sorted({config.server_of[rank] for rank in shown}), "server"
        width = len(str(shown[-1])) if shown else 0
        prefixes = [f"[{kind} {number:>{width}}] " if len(shown) > 1 else "" for number in shown]
        logs = [config.run_dir / f"{kind}{number}.log" for number in shown]
        return [LogTail(log, self._terminal, prefix) for log, prefix in zip(logs, prefixes, strict=True)]

    # ---- while it runs ---------------------------------------------------------------------------------------------

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs the work beside the rest of the session. An exception in it ends the run."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._end_if_broken)
        return task

    def _end_if_broken(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._end(InternalError(f"internal error: {type(error).__name__}: {error}"))

    async def _outcome(self, coordinator: Coordinator) -> Outcome:
        """The coordinator's outcome, unless something else ends the run before it."""
        return await self._unless_interrupted(coordinator.finished())

    async def _unless_interrupted(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns the result of the work. Raises the error that ends the run if that comes first."""
        assert self._abort is not None, "a session runs once"
        finished = asyncio.create_task(work)
        either: set[asyncio.Future[Any]] = {finished, self._abort}
        done, _ = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if finished in done:
            return finished.result()
        finished.cancel()
        await asyncio.gather(finished, return_exceptions=True)
        raise self._abort.result()

    async def _show(self, coordinator: Coordinator) -> None:
        """Shows the status, until cancelled."""
        while True:
            await asyncio.sleep(SHOW_EVERY_S)
            line_wanted = self._terminal.status_due()
            status = coordinator.status(line_wanted=line_wanted)
            if status.notice:
                self._terminal.notice(status.notice)
            if line_wanted:
                self._terminal.status(status.line)

    async def _take_events(self, launcher: Launcher | Machines, coordinator: Coordinator) -> None:
        """Handles the forker's messages until it ends."""
        async for event in launcher.events():
            match event["event"]:
                case "ready":
                    self.versions = {name: event[name] for name in ("torch", "python")}
                case "left_out":
                    coordinator.warn(event["text"])
                    self._terminal.remark(f"warning: {event['text']}")
                case "took":
                    coordinator.rank_took(event["rank"], event["memory"])
                case "exited":
                    coordinator.rank_exited(event["rank"], event["code"], event["signal"], event["untold"])
                case "visible":
                    self._visible = tuple(event["paths"])
                case "noted":
                    self._own, self._unnoted = tuple(event["folders"]), event["fault"]
                case "isolation":
                    self._show_isolation(event["level"], event["reason"])
                case "dismissed":
                    coordinator.rank_dismissed(event["rank"], event["signal"])
                case "command_ended":
                    if not coordinator.launcher_ended() and (event["code"] or event["signal"]):
                        self._end(self._command_failed(event["server"], event["code"], event["signal"]))
                case "failed":
                    self._end(EnvironmentUnusable(event["message"], event["hint"], self._forker_log()))
                case "refused" | "machine_joined":
                    self._terminal.remark(event["remark"])
                case "machine_lost":
                    assert self._gathering is not None, "a machine of a run without any"
                    self._end(await self._gathering.lost(event))
                case "server_lost":
                    self._end(self._lost(f"emulated server {event['server']}", event["signal"]))
                case "lost":
                    self._end(self._lost("the forker", event["signal"]))

    async def _tell_ends(self, launcher: Launcher | Machines, coordinator: Coordinator) -> None:
        """Tells launchers of ranks' ends when virtual time has come to them, until cancelled."""
        async for rank in coordinator.ends_to_tell():
            launcher.tell_end(rank)

    async def _ask_memory(self, launcher: Launcher | Machines, coordinator: Coordinator) -> None:
        """Asks servers for the memory of ranks that a failed run leaves behind, until cancelled."""
        async for rank in coordinator.memory_to_ask():
            launcher.ask_memory(rank)

    def _show_isolation(self, level: str, reason: str) -> None:
        """Shows remarks on isolation: that the wanted level is not available, or that files under /tmp and in the home
        folder are affected.
        """
        if reason:
            self._terminal.remark(f"emulated servers share this machine's network, processes and /tmp: {reason}")
        if level == "full":
            for path in isolation.private_paths(self._config.arguments):
                self._terminal.remark(
                    f"{path} is private to each emulated server and ends with the run; to keep it, make the directory "
                    "before, choose one outside /tmp, or use --isolation none"
                )
            for path in isolation.outputs(self._config.arguments, os.environ)[1]:
                if not any(isolation.is_below(path, folder) for folder in self._config.writable):
                    self._terminal.remark(
                        f"emulated servers only read the home folder and cannot make {path}: make the directory "
                        "before, or choose one in the working directory"
                    )

    def _command_failed(self, server: int, code: int, signal: int) -> LauncherFailed:
        config = self._config
        log = config.run_dir / f"server{server}.log"
        how = f"was ended by signal {signal}" if signal else f"ended with exit code {code}"
        end = "\n".join(f"  | {line}" for line in terminal.last_lines(log))
        return LauncherFailed(
            f"{config.script} on server {server} {how}; its log is {short(log)}",
            details=end,
            exit_code=128 + signal if signal else code,
        )

    def _lost(self, process: str, number: int) -> InternalError:
        """The error for a process that has ended. `number`: the signal that ended it, 0 if none is known."""
        how = f"was ended by {self._memory_kills.signal_in_words(number)}" if number else "ended unexpectedly"
        return InternalError(f"{process} {how}", details=self._forker_log())

    def _forker_log(self) -> str:
        """The last lines that the forker, the servers and the hook library in them have logged; "" if there are
        none.
        """
        log = self._config.run_dir / "forker.log"
        lines = terminal.last_lines(log)
        return "\n".join([f"the end of {short(log)}:", *(f"  | {line}" for line in lines)]) if lines else ""

    def _end(self, error: PhantoraError) -> None:
        """Ends the run with this error, unless it is already ending. A failure after an interrupt is a consequence of
        it.
        """
        if self._interrupted_at_s is not None and not isinstance(error, Interrupted):
            return
        if self._abort is not None and not self._abort.done() and not self._stopping:
            self._abort.set_result(error)

    @contextlib.contextmanager
    def _signals(self, coordinator: Coordinator, launcher: Launcher | Machines) -> Iterator[None]:
        """A context in which signals end the run. Afterwards they are ignored: the command writes the report and
        ends.
        """
        loop = asyncio.get_running_loop()

        def interrupt(number: int, _frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(self._interrupt, coordinator, launcher)

        # The loop's own handlers would leave the default ones behind for an instant, which end the command.
        for number in INTERRUPTS:
            signal.signal(number, interrupt)
        try:
            yield
        finally:
            for number in INTERRUPTS:
                signal.signal(number, signal.SIG_IGN)

    def _interrupt(self, coordinator: Coordinator, launcher: Launcher | Machines) -> None:
        """Handles an interrupt. The first one ends the run; one that comes while the ranks end kills them."""
        now_s = asyncio.get_running_loop().time()
        if self._interrupted_at_s is None:
            self._interrupted_at_s = now_s
        elif now_s - self._interrupted_at_s < ONE_INTERRUPT_S:
            return
        if self._stopping or self._interrupted_at_s < now_s:
            launcher.kill()
        if not coordinator.interrupt():
            self._end(Interrupted("interrupted"))

    # ---- at its end ------------------------------------------------------------------------------------------------

    def _add_log(self, outcome: Outcome) -> None:
        """Adds the end of the log of a rank that died and whose output the user has not seen."""
        failure = outcome.failure
        if isinstance(failure, RankDied) and (cache := self._config.compile_cache) is not None:
            failure.message = ": ".join(
                filter(None, [compile_cache.why_failed(cache, failure.message), failure.message])
            )
        if isinstance(failure, RankDied) and failure.rank not in self._config.shown_ranks:
            log = self._config.log(failure.rank)
            if end := terminal.last_lines(log):
                lines = [f"the end of {log.name}:", *(f"  | {line}" for line in end)]
                failure.details = "\n".join([*filter(None, [failure.details]), *lines])
