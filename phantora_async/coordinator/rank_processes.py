"""The ranks' processes: they connect, send records, close their connection and end, with an error or without."""

from __future__ import annotations

import asyncio
from typing import Any

from emu.contract import records
from phantora_async.coordinator.failures import Failures
from phantora_async.coordinator.ranks.connections import Connections
from phantora_async.coordinator.ranks.server_check import ServerCheck
from phantora_async.coordinator.reactions import Reactions
from phantora_async.coordinator.restarts import Held, Restarts
from phantora_async.coordinator.run_end import Exit, RunEnd
from phantora_async.coordinator.simulation import Simulation
from phantora_async.coordinator.tracing import trace_profiled
from phantora_async.coordinator.turns import LOOK_AGAIN_S, Turns
from phantora_async.errors import RunFailure
from phantora_async.ingest.channel import Channel
from phantora_async.liveness.blocked_ranks import BlockedRanks, asked, is_news, reads_clock
from phantora_async.liveness.poll_watch import PollWatch
from phantora_async.liveness.stall_watch import StallWatch
from phantora_async.report import Usage

EXIT_S = 2.0
"""A process that has ended is reported within this time after its connection has closed."""


class RankProcesses:
    """A ``channel.Receiver``."""

    def __init__(
        self,
        simulation: Simulation,
        *,
        connections: Connections,
        blocked_ranks: BlockedRanks,
        stall_watch: StallWatch,
        poll_watch: PollWatch,
        restarts: Restarts,
        reactions: Reactions,
        run_end: RunEnd,
        failures: Failures,
        turns: Turns,
        usage: Usage,
    ) -> None:
        self._spec = simulation.spec
        self._timeline = simulation.timeline
        self._fact_builder = simulation.fact_builder
        self._trace = simulation.trace
        self._connections = connections
        self._blocked_ranks = blocked_ranks
        self._stall_watch = stall_watch
        self._poll_watch = poll_watch
        self._restarts = restarts
        self._reactions = reactions
        self._run_end = run_end
        self._failures = failures
        self._turns = turns
        self._usage = usage
        self._server_check = ServerCheck(simulation.spec.servers)
        self._dismissed: set[int] = set()
        """The ranks whose process was ended by the process that started it, until its connection closes."""

    # ---- for the channels, see ``channel.Receiver`` ----------------------------------------------------------------

    def connected(self, channel: Channel) -> None:
        rank = channel.hello.rank
        self._server_check.check(channel.pid, rank)
        if not self._restarts.hold(channel):
            self._connections.connect(channel)
            self._usage.add_rank(rank, channel.pid)
        elif self._restarts.next_ones:
            self._begin_again_soon()

    def received(self, channel: Channel, arrived: list[Any], nbytes: int) -> None:
        arrived, flushed = self._connections.flushed(channel, arrived)
        if self._restarts.keep(channel, arrived, nbytes):
            self._restart_if_complete()
        elif arrived:
            self._take_in(channel.rank, arrived, nbytes, flushed)
        elif flushed:
            self._turns.flushed()

    def _take_in(self, rank: int, arrived: list[Any], nbytes: int, flushed: bool = False) -> None:
        """Takes in records of the rank. `flushed`: the rank was asked to send what it had, and may sleep on."""
        news = is_news(arrived)
        self._blocked_ranks.rank_spoke(rank, news, reads_clock(arrived), flushed, asked(arrived))
        if news:
            self._stall_watch.heard(rank)
            self._poll_watch.heard()
            self._restarts.news()
        if self._reactions.going_on:
            for record in arrived:
                if record.kind == records.STALL_CLOCK:
                    self._reactions.clock(rank, record.at_ns)
        self._usage.received(len(arrived), nbytes)
        self._connections.take(rank, arrived)
        trace_profiled(self._trace, self._timeline, self._fact_builder)
        bye = self._fact_builder.rank_info[rank].bye
        if bye is not None:
            self._usage.goodbye(rank)
            if bye.exit_code:
                self._failed(rank)
        self._turns.take_soon()

    def closed(self, channel: Channel) -> None:
        """Handles the end of a connection. Without a BYE, the process was ended from within (C's `exit`) or from
        outside, or it goes on as another program (`exec`). Its exit code counts, which may come before or after this.
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
            self._turns.take_soon()
        self._turns.check_over()

    def _note_exec(self, channel: Channel) -> None:
        rank = channel.rank
        ended = rank in self._run_end.exits or self._run_end.failure is not None
        ended = ended or self._fact_builder.rank_info[rank].bye is not None
        if not ended and not self._connections.connected(rank) and self._connections.is_latest(channel):
            for one in self._connections.done_by(rank):
                self._fact_builder.warn_of(
                    one,
                    "the process runs another program now (exec): it is emulated again once this program uses a GPU",
                )

    def failed(self, error: Exception) -> None:
        if isinstance(error, RunFailure):
            self._failures.fail(error)
            self._turns.take_soon()
        else:
            context = {"message": "while taking in records", "exception": error}
            self._failures.unexpected(asyncio.get_running_loop(), context)

    # ---- ends ------------------------------------------------------------------------------------------------------

    def exited(self, rank: int, exit: Exit, untold: bool) -> None:
        """See ``Coordinator.rank_exited``."""
        if rank in self._run_end.exits:
            return
        self._run_end.exits[rank] = exit
        if not exit.well:
            self._failed(rank, untold)
        elif not self._connections.connected(rank):
            self._ended_well(rank)
        self._turns.check_over()

    def dismissed(self, rank: int, exit: Exit) -> None:
        """See ``Coordinator.rank_dismissed``."""
        if self._restarts.first is not None:
            self.exited(rank, exit, untold=False)
        elif self._connections.connected(rank):
            self._dismissed.add(rank)
        else:
            self._ended_well(rank)

    def _ended_well(self, rank: int) -> None:
        with self._failures.caught():
            self._connections.rank_ended(rank)
        self._turns.take_soon()

    def _failed(self, rank: int, untold: bool = False) -> None:
        if self._reactions.going_on:
            if not self._reactions.failed(rank, untold):
                self.end_reaction()
        elif self._spec.launcher:
            self._restarts.fail(rank, untold)
            self._restart_if_complete()
            self._turns.take_soon()
        else:
            self._failures.fail(self._run_end.rank_died(rank))

    def end_reaction(self) -> None:
        """Ends a reaction: ranks that have waited for something dead have ended, or do nothing about it."""
        self._run_end.reaction = self._reactions.text()
        failed, why = self._reactions.end()
        if not failed:
            self._failures.end(why)
        elif not self._spec.launcher:
            self._failures.fail(self._run_end.rank_died(next(iter(failed))))
        else:
            for rank, untold in failed.items():
                self._restarts.fail(rank, untold)
            self._restarts.tell()
            self._turns.take_soon()

    def _restart_if_complete(self) -> None:
        first = self._restarts.first
        if first is not None and self._run_end.failure is None and self._restarts.complete():
            with self._failures.caught():
                exit_code = self._run_end.rank_died(first).exit_code
                for process in self._restarts.restart(exit_code, self._reactions.take_ended_ns()):
                    self._take_held(process)

    # ---- processes that were held ----------------------------------------------------------------------------------

    def _begin_again_soon(self) -> None:
        asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._begin_again)

    def _begin_again(self) -> None:
        """Lets the processes of ranks whose former one has ended well go on when virtual time can decide nothing
        more.
        """
        if self._run_end.over.is_set() or self._run_end.failure is not None or not self._restarts.next_ones:
            return
        with self._failures.caught():
            for process in self._restarts.begin_again() if self._turns.stand_still else ():
                self._take_held(process)
        if self._restarts.next_ones:
            self._begin_again_soon()

    def _take_held(self, process: Held) -> None:
        self.connected(process.channel)
        for arrived, nbytes in process.arrived:
            self._take_in(process.channel.hello.rank, arrived, nbytes)
