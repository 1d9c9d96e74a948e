"""The coordinator of a run: serves the ranks' connections, moves virtual time on, knows when the run is over.

One asyncio loop and no threads. ``Connections`` feeds records to virtual time, which runs in short turns, between which
the loop reads sockets; ``Standstill`` looks at ranks that virtual time waits for; ``RunEnd`` decides how the run ended.
Whatever cannot continue raises RunFailure, and the loop's callbacks here catch it.
"""

from __future__ import annotations

import asyncio
import gc
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from emu.contract import records
from phantora_async.coordinator.connections import Connections
from phantora_async.coordinator.early_end import EarlyEnd
from phantora_async.coordinator.live_state import LiveState
from phantora_async.coordinator.network_model import NetsimNetworkModel, network_of
from phantora_async.coordinator.restarts import Held, Restarts
from phantora_async.coordinator.run_end import Exit, Outcome, RunEnd
from phantora_async.coordinator.standstill import PATIENCE_S, Standstill
from phantora_async.coordinator.status import Status, StatusView
from phantora_async.diagnosis.rank_states import RankState, states
from phantora_async.errors import Deadlock, InternalError, Interrupted, Mismatch, RunFailure
from phantora_async.ingest.channel import Channel
from phantora_async.ingest.costs import Costs, CostTable
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.liveness.blocked_ranks import BlockedRanks, is_news
from phantora_async.liveness.loop_watch import LoopWatch
from phantora_async.liveness.rank_stacks import Stacks
from phantora_async.liveness.sleep_detector import Processes, ProcFs
from phantora_async.liveness.stall_watch import StallWatch
from phantora_async.reasons import LastSteps
from phantora_async.report import Document, Usage
from phantora_async.run_spec import RunSpec
from phantora_async.trace import telling
from phantora_async.trace.run_trace import RunTrace
from phantora_async.trace.writing import Context
from phantora_async.virtual_time import Snapshot, SpeculationPolicy, Stop, Timeline
from profiles import CostModel

TURN = 2_000
"""Events that virtual time executes before the loop looks at sockets again: about 10 ms."""
LOOK_AGAIN_S = 0.05
"""Between looks at ranks that go on after another one has failed."""
STOP_S = 3.0
"""How long ranks that are told to stop may take until the next one has ended."""
LOOK_S = 0.05
"""How often ranks that are told to stop are looked at."""
EXIT_S = 2.0
"""A process that has ended is reported within this time after its connection has closed."""
GC_THRESHOLD = (200_000, 100, 100)
"""Facts and simulated state form no garbage cycles. Looking for them would take a third of the time."""


class Coordinator:
    """``serve``, start the ranks, report their ends with ``rank_exited``, await ``finished``, ``close``."""

    def __init__(self, spec: RunSpec, processes: Processes | None = None) -> None:
        """`processes`: where threads of ranks are looked up, /proc unless a test says otherwise."""
        self._spec = spec
        network = network_of(spec, spec.cluster)
        optimistic = spec.clock == "optimistic"
        self._timeline = Timeline(spec.world_size, network, spec.host.queue_depth, optimistic=optimistic)
        self._policy = SpeculationPolicy(self._timeline, spec.speculation)
        model = CostModel(spec.gpu, *(times.on for times in spec.kernel_times), measure=spec.measure)
        costs = Costs(model, CostTable(spec.cost_table))
        self._fact_builder = FactBuilder(spec.world_size, costs)
        self._trace = self._new_trace(network, network.link_names)
        if self._trace.ranks:
            telling.start(self._timeline, self._trace)
        last_steps = None
        if spec.reasons:
            last_steps = LastSteps(spec.world_size, self._timeline.output.results.steps_done)
        self._connections = Connections(self._timeline, self._fact_builder, spec.world_size, last_steps)
        pids = self._connections.pids
        stacks = Stacks(spec.socket.parent)
        self._blocked_ranks = BlockedRanks(self._timeline, self._fact_builder, pids, processes or ProcFs())
        self._stall_watch = StallWatch(self._timeline, self._fact_builder, pids, self._blocked_ranks, stacks)
        self._standstill = Standstill(self._timeline, self._connections, self._blocked_ranks)
        loop_watch = LoopWatch(self._fact_builder.reads, spec.loop_turns, spec.stall_timeout_s)
        self._status_view = StatusView(
            self._timeline, self._fact_builder, self._stall_watch, loop_watch, spec.stall_timeout_s
        )
        self._run_end = RunEnd(spec, self._timeline, self._fact_builder, stacks, network, last_steps)
        self._restarts = Restarts(
            self._timeline, self._fact_builder, self._connections, self._run_end.exits, spec.restart_delay_ns
        )
        self._early_end = EarlyEnd(spec, self._timeline)
        self._usage = Usage()
        self._live_state = LiveState(spec, self._timeline, self._fact_builder)
        self._stall = ""
        self._over = asyncio.Event()
        """The run has ended, or has failed."""
        self._server: asyncio.Server | None = None
        self._channels: list[Channel] = []
        self._dismissed: set[int] = set()
        """Ranks whose process was ended by who started it, until its connection closes."""
        self._gc_threshold = gc.get_threshold()
        self._turn_due = False
        self._stop = Stop.STARVED
        """Why the last turn of virtual time ended."""
        self._look_timer: asyncio.TimerHandle | None = None

    def _new_trace(self, network: NetsimNetworkModel, links: list[str]) -> RunTrace:
        fact_builder, request = self._fact_builder, self._spec.trace

        def pid(rank: int) -> int:
            hello = fact_builder.rank_info[rank].hello
            return hello.pid if hello is not None else 0

        traced = request.chosen() if request is not None else frozenset[int]()
        context = Context(fact_builder.costs, network.plan, pid, links, traced)
        return RunTrace(self._spec, fact_builder, context)

    def _trace_profiled(self) -> None:
        """Scripts of more ranks have started a profiler."""
        if not self._trace.ranks:
            telling.start(self._timeline, self._trace)
        self._trace.ranks |= self._fact_builder.profiled

    # ---- for the session -------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Listens. The cost table exists already. To be called before the first rank starts."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._unexpected)
        self._gc_threshold = gc.get_threshold()
        gc.set_threshold(*GC_THRESHOLD)
        self._server = await loop.create_unix_server(self.stream, str(self._spec.socket))

    def rank_exited(self, rank: int, returncode: int, signal: int | None, untold: bool = False) -> None:
        """The rank's process has ended, with this exit code or by this signal. `untold`: its launcher does not know
        yet; ``ends_to_tell`` says when it is to be told.
        """
        if rank in self._run_end.exits:
            return
        exit = self._run_end.exits[rank] = Exit(returncode, signal or 0)
        if not exit.well:
            self._rank_failed(rank, untold)
        elif not self._connections.connected(rank):
            self._ended_well(rank)
        self._check_over()

    def rank_dismissed(self, rank: int, signal: int) -> None:
        """Who started the rank's process has ended it by this signal. If no rank has failed before, another process may
        become this rank.
        """
        if self._restarts.first is not None:
            self.rank_exited(rank, 0, signal)
        elif self._connections.connected(rank):
            self._dismissed.add(rank)
        else:
            self._ended_well(rank)

    def launcher_ended(self) -> bool:
        """The user's launcher has ended on one server. True: that has ended the run, because a rank had failed."""
        first = self._restarts.first
        if first is None:
            return False
        self._fail(self._run_end.rank_died(first))
        return True

    async def ends_to_tell(self) -> AsyncIterator[int]:
        """Ranks of whose end their launcher is to be told now."""
        while True:
            yield await self._restarts.ends.get()

    async def finished(self) -> Outcome:
        """Returns when all ranks have ended and virtual time with them, or when the run has failed."""
        try:
            await self._over.wait()
            if self._run_end.failure is not None:
                await self._run_end.settle()
            if self._run_end.stopped is not None or isinstance(self._run_end.failure, Interrupted):
                await self._stop_ranks()
        finally:
            asyncio.get_running_loop().set_exception_handler(None)
            gc.set_threshold(*self._gc_threshold)
            if self._look_timer is not None:
                self._look_timer.cancel()
            if self._server is not None:
                self._server.close()
            self._trace.close()
        self._usage.passed_over = self._standstill.passed_over
        if self._run_end.failure is None and self._run_end.stopped is None and (text := self._early_end.missed()):
            self._fact_builder.warn(0, text)
        outcome = self._run_end.outcome(self._usage, self._restarts.done)
        return replace(outcome, unwritten=self._trace.failure)

    async def _stop_ranks(self) -> None:
        """The ranks write out what their scripts have buffered, tell their peaks of memory, and end. One that does not
        answer is ended with the run's other processes.
        """
        self._connections.stop_all()
        before, waited_s = -1, 0.0
        while waited_s < STOP_S and len(self._run_end.exits) < len(self._connections.pids):
            ended = len(self._run_end.exits)
            waited_s = 0.0 if ended > before else waited_s + LOOK_S
            before = ended
            await asyncio.sleep(LOOK_S)

    def pid(self, rank: int) -> int | None:
        """The process of a rank that is connected."""
        return self._connections.pids.get(rank)

    def interrupt(self) -> bool:
        """Ctrl-C: ends the run and says who waits for whom. False if no rank has connected yet."""
        if not self._connections.pids:
            return False
        stall = self._stall_watch.look()
        self._fail(Interrupted(f"interrupted{f' while {stall}' if stall else ''}", shows_ranks=stall is not None))
        return True

    def status(self) -> Status:
        """What to show now. To be called about twice a second: ends the run when ranks have waited for too long."""
        self._live_state.look()
        status = self._status()
        self._stall = status.stall
        return status

    def progress(self) -> Document:
        """For a page, see ``LiveState``."""
        return self._live_state.progress(self._timeline.snapshot([]), self._stall)

    def ranks(self) -> Document:
        """For a page: what every rank is doing, its figures so far."""
        snapshot = self._timeline.snapshot()
        return self._live_state.ranks(snapshot, self._rank_states(snapshot))

    def report_so_far(self) -> Document:
        """The report, as complete as the run is now."""
        return self._run_end.report(self._usage, self._restarts.done)

    def _status(self) -> Status:
        if self._restarts.given_up() and self._restarts.told:
            self.launcher_ended()
        elif self._restarts.given_up():
            self._restarts.tell()  # although a rank that computes for long has not come to this instant
            self._restarts.news()
        if self._run_end.failure is None and not self._restarts.failed:
            self._usage.sample_next()
            with self._failures():
                if self._spec.progress and self._stop is Stop.STARVED and not self._turn_due:
                    self._policy.look_ahead()
                return self._status_view.look()
        return self._status_view.look(stalls=False)

    def close(self) -> None:
        """Closes the connections. To be called when the ranks have ended: one that is still running would end itself
        with ``ExitCode.DISCONNECTED``.
        """
        for channel in self._channels:
            channel.close()

    # ---- for the channels, see ``channel.Receiver`` ----------------------------------------------------------------

    def stream(self, pid: int = 0) -> Channel:
        """The connection of a process. `pid`: see ``Channel``."""
        channel = Channel(self, pid)
        self._channels.append(channel)
        return channel

    def connected(self, channel: Channel, hello: records.Hello) -> None:
        if not self._restarts.hold(channel, hello):
            self._connections.connect(channel, hello)
            self._usage.add_rank(hello.rank, channel.pid)
        elif self._restarts.next_ones:
            self._begin_again_soon()

    def received(self, channel: Channel, arrived: list[Any], nbytes: int) -> None:
        if self._restarts.keep(channel, arrived, nbytes):
            self._restart_if_complete()
        else:
            self._take_in(channel.rank, arrived, nbytes)

    def _take_in(self, rank: int, arrived: list[Any], nbytes: int) -> None:
        news = is_news(arrived)
        self._blocked_ranks.rank_spoke(rank, news)
        if news:
            self._stall_watch.heard(rank)
            self._restarts.news()
        self._usage.received(len(arrived), nbytes)
        self._connections.take(rank, arrived)
        if not self._fact_builder.profiled <= self._trace.ranks:
            self._trace_profiled()
        bye = self._fact_builder.rank_info[rank].bye
        if bye is not None:
            self._usage.goodbye(rank)
            if bye.exit_code:
                self._rank_failed(rank)
        self._take_turn_soon()

    def closed(self, channel: Channel) -> None:
        """Without a BYE, the process was ended from within (C's `exit`) or from outside, or it goes on as another
        program (`exec`). Its exit code counts, which may come before or after this.
        """
        rank = channel.rank
        if self._restarts.closed(channel):
            return
        self._connections.disconnected(rank)
        if not self._connections.connected(rank):
            if rank in self._run_end.exits:
                if self._run_end.exits[rank].well:
                    self._ended_well(rank)
            elif rank in self._dismissed:
                self._dismissed.discard(rank)
                self._ended_well(rank)
            elif self._fact_builder.rank_info[rank].bye is None:
                asyncio.get_running_loop().call_later(EXIT_S, self._note_exec, channel)
            self._restarts.former_closed(rank)
            self._restart_if_complete()
            self._take_turn_soon()
        self._check_over()

    def _note_exec(self, channel: Channel) -> None:
        rank = channel.rank
        ended = rank in self._run_end.exits or self._run_end.failure is not None
        ended = ended or self._fact_builder.rank_info[rank].bye is not None
        if not ended and not self._connections.connected(rank) and self._connections.is_latest(channel):
            self._fact_builder.warn(
                rank, "the process has executed another program: it is emulated again once that uses a GPU"
            )

    def failed(self, error: Exception) -> None:
        if isinstance(error, RunFailure):
            self._fail(error)
        else:
            self._unexpected(asyncio.get_running_loop(), {"message": "while taking in records", "exception": error})

    # ---- ranks that fail -------------------------------------------------------------------------------------------

    def _rank_failed(self, rank: int, untold: bool = False) -> None:
        if self._spec.launcher:
            self._restarts.fail(rank, untold)
            self._restart_if_complete()
            self._take_turn_soon()
        else:
            self._fail(self._run_end.rank_died(rank))

    def _restart_if_complete(self) -> None:
        first = self._restarts.first
        if first is not None and self._run_end.failure is None and self._restarts.complete():
            with self._failures():
                for process in self._restarts.restart(self._run_end.rank_died(first).exit_code):
                    self._take_held(process)

    def _begin_again_soon(self) -> None:
        asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._begin_again)

    def _begin_again(self) -> None:
        """Processes of ranks whose former one has ended well go on when virtual time can decide nothing more."""
        if self._over.is_set() or self._run_end.failure is not None or not self._restarts.next_ones:
            return
        with self._failures():
            still = not self._turn_due and self._stop in (Stop.STARVED, Stop.DRAINED)
            for process in self._restarts.begin_again() if still else ():
                self._take_held(process)
        if self._restarts.next_ones:
            self._begin_again_soon()

    def _take_held(self, process: Held) -> None:
        self.connected(process.channel, process.hello)
        for arrived, nbytes in process.arrived:
            self._take_in(process.hello.rank, arrived, nbytes)

    def _look_after_failure(self) -> None:
        """Virtual time stands where the launcher notices that a rank has failed. The launcher is told when the other
        ranks have come to this instant, too.
        """
        if self._blocked_ranks.all_wait():
            self._restarts.tell()
        else:
            self._look_later(LOOK_AGAIN_S)

    # ---- turns of virtual time -------------------------------------------------------------------------------------

    def _take_turn_soon(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn_due = False
        if self._over.is_set():
            return
        with self._failures():
            asked = any(rank_info.questions for rank_info in self._fact_builder.rank_info)
            self._stop = self._policy.run(TURN, asked)
            self._connections.note_waits()
            answers = self._timeline.take_answers()
            for rank, _ in answers:
                self._fact_builder.answered(rank)
            if self._fact_builder.profiled:
                answers = self._trace.take_answers() + answers
            self._connections.send(answers)
            self._connections.resume()
            if self._early_end.reached(self._stop):
                self._stop_run()
            elif self._stop is Stop.BUDGET:
                self._take_turn_soon()
            elif self._stop is Stop.STARVED:
                self._look_later(self._standstill.first_look_s())
            elif self._timeline.all_finished():
                self._check_over()
            elif self._spec.launcher:
                self._look_later(LOOK_AGAIN_S)  # another process of a rank that has ended may come
            else:
                raise Deadlock("deadlock: no rank can ever continue")

    # ---- standstill ------------------------------------------------------------------------------------------------

    def _look_later(self, delay_s: float) -> None:
        if self._look_timer is not None:
            self._look_timer.cancel()
        self._look_timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        self._look_timer = None
        if self._over.is_set() or self._turn_due or self._stop not in (Stop.STARVED, Stop.DRAINED):
            return
        if self._stop is Stop.DRAINED:
            self._look_for_processes()
            return
        self._blocked_ranks.gone = self._restarts.failed
        if self._timeline.starved in self._restarts.failed:
            if not self._restarts.told:
                self._look_after_failure()
            return
        with self._failures():
            starved = self._timeline.starved
            if (
                starved is not None
                and self._spec.launcher
                and self._restarts.nobody_starts(starved, self._blocked_ranks)
            ):
                self._do_without(starved)
                return
            again_s = self._standstill.look()
            if again_s is None:
                self._take_turn_soon()
            else:
                self._look_later(again_s)

    def _look_for_processes(self) -> None:
        """Ranks wait, and others have ended: their launcher may start the next processes of these."""
        with self._failures():
            if self._restarts.idle_s() > PATIENCE_S and not self._restarts.next_ones:
                raise Deadlock("deadlock: no rank can ever continue")
            self._look_later(LOOK_AGAIN_S)

    def _do_without(self, rank: int) -> None:
        """The launcher has started fewer ranks than there are GPUs. If the rank comes after all, it begins then."""
        self._fact_builder.warn(
            rank,
            f"no process has used this GPU while the others waited for {PATIENCE_S:.0f} s: virtual time goes on "
            "without it; --nproc-per-node should be the number of ranks that the launcher starts on a server",
        )
        self._ended_well(rank)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def _ended_well(self, rank: int) -> None:
        with self._failures():
            self._connections.rank_ended(rank)
        self._take_turn_soon()

    def _check_over(self) -> None:
        """All processes have ended, and virtual time has executed everything that they sent."""
        exits = len(self._run_end.exits)
        if exits == self._spec.world_size and self._timeline.all_finished() and self._stop is Stop.DRAINED:
            self._over.set()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """A RunFailure within ends the run."""
        try:
            yield
        except RunFailure as failure:
            self._fail(failure)

    def _stop_run(self) -> None:
        self._run_end.stopped = self._early_end.document()
        self._over.set()

    def _fail(self, failure: RunFailure) -> None:
        if self._run_end.stopped is not None:
            return  # ranks end in the midst of their work
        if self._restarts.failed and isinstance(failure, Deadlock | Mismatch):
            self._restarts.tell()  # others cannot go on without that rank: the launcher decides what becomes of them
            return
        if isinstance(failure, Deadlock) and self._early_end.explains():
            self._stop_run()
            return
        self._run_end.fail(failure, self._rank_states(), self._connections.pids)
        self._over.set()

    def _rank_states(self, snapshot: Snapshot | None = None) -> list[RankState]:
        """What every rank is doing now. `snapshot`: of all ranks, if there is one already."""
        ranks = range(self._spec.world_size)
        sleeping = {rank for rank in ranks if self._blocked_ranks.sleeps(rank)}
        return states(snapshot or self._timeline.snapshot(), self._fact_builder, sleeping)

    def _unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An unexpected exception in a callback ends the run: part of the callback's work was not done."""
        error = context.get("exception")
        text = "".join(traceback.format_exception(error)) if error is not None else ""
        self._fail(InternalError(f"internal error: {context['message']}", details=text.rstrip()))
