"""The coordinator of a run: serves the ranks' connections, moves virtual time on, knows when the run is over.

It uses one asyncio loop and no threads. ``RankProcesses`` takes in what processes send; ``Connections`` feeds it to
virtual time, which runs in ``Turns``, between which the loop reads sockets. Whatever cannot continue raises RunFailure;
the loop's callbacks catch it, ``Failures`` decides what follows, ``RunEnd`` says how the run ended.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Container, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from emu.contract import isolation
from phantora_async.coordinator.early_end import EarlyEnd
from phantora_async.coordinator.failures import Failures
from phantora_async.coordinator.live_state import LiveState
from phantora_async.coordinator.rank_processes import RankProcesses
from phantora_async.coordinator.ranks.arrivals import Arrivals
from phantora_async.coordinator.ranks.connections import Connections
from phantora_async.coordinator.reactions import Reactions
from phantora_async.coordinator.restarts import Restarts
from phantora_async.coordinator.run_end import Exit, Outcome, RunEnd
from phantora_async.coordinator.simulation import simulation_of
from phantora_async.coordinator.status import Status, StatusView
from phantora_async.coordinator.turns import Turns
from phantora_async.errors import InternalError, Interrupted
from phantora_async.ingest.channel import Channel
from phantora_async.liveness.blocked_ranks import BlockedRanks
from phantora_async.liveness.bystanders import Bystanders
from phantora_async.liveness.compiling import compiling_ranks
from phantora_async.liveness.loop_watch import LoopWatch
from phantora_async.liveness.poll_watch import PollWatch
from phantora_async.liveness.proc_fs import ProcFs
from phantora_async.liveness.rank_stacks import Stacks
from phantora_async.liveness.sleep_detector import Processes
from phantora_async.liveness.stall_watch import StallWatch
from phantora_async.report import Document, Usage
from phantora_async.run_spec import RunSpec

STOP_S = 3.0
"""The seconds that ranks that are told to stop may take until the next one has ended."""
LOOK_S = 0.05
"""The seconds between two looks at ranks that are told to stop."""
ASK_S = 3.0
"""The seconds that servers may take to say what memory the ranks of a failed run have had."""
ASK_EVERY_S = 0.02
"""The seconds between two looks whether they have said it."""
GC_THRESHOLD = (200_000, 100, 100)
"""The garbage collector's thresholds. Facts and simulated state form no garbage cycles; looking for them would take a
third of the time.
"""


class Coordinator:
    """Serves one run: ``serve``, start the ranks, report their ends with ``rank_exited``, await ``finished``,
    ``close``.
    """

    def __init__(self, spec: RunSpec, processes: Processes | None = None) -> None:
        """`processes`: looks up the threads of ranks; in /proc unless a test says otherwise."""
        simulation = simulation_of(spec)
        timeline, fact_builder = simulation.timeline, simulation.fact_builder
        connections = Connections(
            timeline,
            fact_builder,
            spec.world_size,
            last_steps=simulation.last_steps,
            recorder=simulation.recorder,
            mirrored_ranks=simulation.mirrored_ranks,
            witnesses=simulation.witnesses,
        )
        pids = connections.pids
        stacks = Stacks(Path(isolation.ranks_folder(str(spec.socket.parent))))
        played_by = {} if simulation.mirrored_ranks is None else {"played_by": simulation.mirrored_ranks.played_by}
        processes = processes or ProcFs()
        blocked_ranks = BlockedRanks(timeline, fact_builder, pids=pids, processes=processes, **played_by)
        loop_watch = LoopWatch(fact_builder.reads, pids, spec.loop_turns, spec.stall_timeout_s)
        # What can end the run, or start its ranks again, is made before what decides between these.
        run_end = RunEnd(simulation, stacks)
        restarts = Restarts(simulation, connections, run_end.exits)
        early_end = EarlyEnd(spec, timeline)
        reactions = Reactions(timeline, connections, spec.faults, spec.stall_timeout_s)
        failures = Failures(
            simulation,
            connections=connections,
            blocked_ranks=blocked_ranks,
            restarts=restarts,
            reactions=reactions,
            early_end=early_end,
            run_end=run_end,
        )
        bystanders = Bystanders(pids, blocked_ranks.threads)
        turns = Turns(
            simulation,
            connections=connections,
            blocked_ranks=blocked_ranks,
            bystanders=bystanders,
            restarts=restarts,
            early_end=early_end,
            run_end=run_end,
            failures=failures,
        )
        stall_watch = StallWatch(
            timeline,
            fact_builder,
            pids=pids,
            blocked_ranks=blocked_ranks,
            stacks=stacks,
            computes_for_s=turns.computes_for_s,
        )
        poll_watch = PollWatch(
            timeline,
            fact_builder,
            pids=pids,
            blocked_ranks=blocked_ranks,
            others_work=bystanders.work,
            listens=bystanders.listener,
            processes=processes,
            given_s=spec.stall_timeout_s,
        )
        usage = Usage()
        self._rank_processes = RankProcesses(
            simulation,
            connections=connections,
            blocked_ranks=blocked_ranks,
            stall_watch=stall_watch,
            poll_watch=poll_watch,
            restarts=restarts,
            reactions=reactions,
            run_end=run_end,
            failures=failures,
            turns=turns,
            usage=usage,
        )
        self._live_state = LiveState(spec, timeline, fact_builder)
        self._status_view = StatusView(
            simulation,
            stall_watch=stall_watch,
            poll_watch=poll_watch,
            loop_watch=loop_watch,
            live_state=self._live_state,
            compiling=partial(compiling_ranks, spec.compile_locks, spec.kernel_locks, pids),
        )
        self._spec = spec
        self._timeline = timeline
        self._fact_builder = fact_builder
        self._trace = simulation.trace
        self._recorder = simulation.recorder
        self._connections = connections
        self._blocked_ranks = blocked_ranks
        self._stall_watch = stall_watch
        self._run_end = run_end
        self._restarts = restarts
        self._reactions = reactions
        self._early_end = early_end
        self._failures = failures
        self._turns = turns
        self._usage = usage
        self._stall = ""
        self._memory_to_ask: asyncio.Queue[int] = asyncio.Queue()
        self._asked_for_memory: set[int] = set()
        """Ranks whose memory is asked for and not known yet."""
        self._memory_can_be_asked = False
        """True if there is somebody who asks servers."""
        self._arrivals = Arrivals(self._rank_processes, spec.socket, spec.world_size)
        self._gc_threshold = gc.get_threshold()

    async def serve(self) -> None:
        """Listens for connections. To be called before the first rank starts, when the cost table exists."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._failures.unexpected)
        self._gc_threshold = gc.get_threshold()
        gc.set_threshold(*GC_THRESHOLD)
        self._arrivals.open()

    def stream(self, pid: int, ranks: Container[int]) -> Channel:
        """The connection of a process of another machine. `pid`, `ranks`: see ``Channel``."""
        return self._arrivals.add(pid, ranks)

    def rank_exited(self, rank: int, returncode: int, signal: int | None, untold: bool = False) -> None:
        """Reports that the rank's process has ended, with this exit code or by this signal. `untold`: its launcher does
        not know yet; ``ends_to_tell`` says when it is to be told.
        """
        self._rank_processes.exited(rank, Exit(returncode, signal or 0), untold)

    def rank_took(self, rank: int, memory: Sequence[Sequence[int]]) -> None:
        """Reports the memory of the rank's process, just before its end is reported or because it was asked for.
        `memory`: see ``FactBuilder.memory_at_end``.
        """
        self._asked_for_memory.discard(rank)
        with self._failures.caught():
            for one in self._connections.done_by(rank):
                self._fact_builder.memory_at_end(one, memory, rank)

    def rank_dismissed(self, rank: int, signal: int) -> None:
        """Reports that the process which started the rank's process has ended it by this signal. If no rank has failed
        before, another process may become this rank.
        """
        self._rank_processes.dismissed(rank, Exit(0, signal))

    def launcher_ended(self) -> bool:
        """Reports that the user's launcher has ended on one server. Returns true if that has ended the run, because a
        rank had failed.
        """
        first = self._restarts.first
        if first is None:
            return False
        self._failures.fail(self._run_end.rank_died(first))
        return True

    async def ends_to_tell(self) -> AsyncIterator[int]:
        """Yields each rank of whose end its launcher is to be told now."""
        while True:
            yield await self._restarts.ends.get()

    async def memory_to_ask(self) -> AsyncIterator[int]:
        """Yields the ranks whose memory is to be found out now: ``rank_took`` is awaited for them."""
        self._memory_can_be_asked = True
        while True:
            yield await self._memory_to_ask.get()

    async def _ask_memory(self) -> None:
        """Asks for the memory of ranks that are left when the run has failed, and have not ended a step, so that no
        record has it. They cannot report it themselves, as they wait for a rank that is gone; their server can.
        """
        for rank in self._connections.pids if self._memory_can_be_asked else ():
            (snapshot,) = self._timeline.snapshot([rank]).ranks
            told = rank in self._run_end.exits or self._fact_builder.rank_info[rank].bye is not None
            if not told and not any(snapshot.memory):
                self._asked_for_memory.add(rank)
                self._memory_to_ask.put_nowait(rank)
        until_s = (loop := asyncio.get_running_loop()).time() + ASK_S
        while self._asked_for_memory and loop.time() < until_s:
            await asyncio.sleep(ASK_EVERY_S)

    async def finished(self) -> Outcome:
        """Returns when all ranks have ended and virtual time with them, or when the run has failed."""
        try:
            await self._run_end.over.wait()
            if self._run_end.failure is not None:
                await self._run_end.settle(self._failures.rank_states, self._blocked_ranks.computes)
                if not isinstance(self._run_end.failure, InternalError | Interrupted):
                    await self._ask_memory()
            if self._run_end.stopped is not None or isinstance(self._run_end.failure, Interrupted):
                await self._stop_ranks()
        finally:
            asyncio.get_running_loop().set_exception_handler(None)
            gc.set_threshold(*self._gc_threshold)
            self._turns.close()
            self._arrivals.close()
            self._trace.close()
        self._usage.passed_over = self._turns.passed_over
        if self._run_end.failure is None and self._run_end.stopped is None and (text := self._early_end.missed()):
            self._fact_builder.warn(0, text)
        outcome = self._run_end.outcome(self._usage, self._restarts.done)
        if self._recorder is not None:
            outcome = replace(outcome, unrecorded=self._recorder.close(self._fact_builder, outcome.report))
        return replace(outcome, unwritten=self._trace.failure)

    async def _stop_ranks(self) -> None:
        """Tells the ranks to stop: they write out what their scripts have buffered, report their peaks of memory, and
        end. A rank that does not answer is ended with the run's other processes; the report then says what is missing.
        """
        self._connections.stop_all()
        before, waited_s = -1, 0.0
        while waited_s < STOP_S and len(self._run_end.exits) < len(self._connections.pids):
            ended = len(self._run_end.exits)
            waited_s = 0.0 if ended > before else waited_s + LOOK_S
            before = ended
            await asyncio.sleep(LOOK_S)
        for rank in self._connections.pids:
            if rank in self._run_end.exits or self._fact_builder.rank_info[rank].bye is not None:
                continue
            for one in self._connections.done_by(rank):
                self._fact_builder.warn_of(
                    one,
                    f"the rank did not answer within {STOP_S:g} s when the run ended: its memory peak is that of the "
                    "steps that it has finished, and what its script had yet to write is lost",
                )

    def warn(self, text: str) -> None:
        """Adds a warning about all ranks to the report."""
        for rank in range(self._spec.world_size):
            self._fact_builder.warn(rank, text)

    def pid(self, rank: int) -> int | None:
        """The process id of a rank that is connected; None if it is not."""
        return self._connections.pids.get(rank)

    def interrupt(self) -> bool:
        """Handles Ctrl-C: ends the run and says who waits for whom. Returns false if no rank has connected yet."""
        if not self._connections.pids:
            return False
        stall = self._stall_watch.look()
        self._failures.fail(
            Interrupted(f"interrupted{f' while {stall}' if stall else ''}", shows_ranks=stall is not None)
        )
        return True

    def status(self, *, line_wanted: bool = True) -> Status:
        """The status to show now, with its line if that is wanted. To be called about twice a second: it ends the run
        when ranks have waited for too long.
        """
        self._live_state.look()
        status = self._status(line_wanted)
        self._stall = status.stall
        return status

    def progress(self) -> Document:
        """The progress for the live page, see ``LiveState``."""
        return self._live_state.progress(self._timeline.snapshot([]), self._stall)

    def ranks(self) -> Document:
        """The activity and the figures so far of every rank, for the live page."""
        snapshot = self._timeline.snapshot()
        return self._live_state.ranks(snapshot, self._failures.rank_states(snapshot))

    def report_so_far(self) -> Document:
        """The report of the run until now."""
        return self._run_end.report(self._usage, self._restarts.done)

    def _status(self, line_wanted: bool) -> Status:
        if self._restarts.given_up() and self._restarts.told:
            self.launcher_ended()
        elif self._restarts.given_up():
            self._restarts.tell()  # although a rank that computes for long has not come to this instant
            self._restarts.news()
        if self._reactions.going_on:
            if self._reactions.over() and not self._restarts.failed:
                self._rank_processes.end_reaction()
            return self._status_view.look(line_wanted=line_wanted, stalls=False)
        if self._run_end.failure is None and not self._restarts.failed:
            self._usage.sample_next()
            with self._failures.caught():
                if self._spec.progress:
                    self._turns.look_ahead()
                return self._status_view.look(line_wanted=line_wanted)
        return self._status_view.look(line_wanted=line_wanted, stalls=False)

    def close(self) -> None:
        """Closes the connections. To be called when the ranks have ended: one that is still running would end itself
        with ``ExitCode.DISCONNECTED``.
        """
        for channel in self._arrivals.channels:
            channel.close()
