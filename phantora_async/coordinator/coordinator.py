"""The coordinator: takes what ranks say, moves virtual time on, answers, and knows when the run is over.

One asyncio loop and no threads. Records come in through channels, pass the intake, and become the timeline's facts; the
timeline runs in short turns between reads. Everything that can end a run ends it through ``_fail``.
"""

from __future__ import annotations

import asyncio
import gc
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from signal import Signals
from typing import Any

import netsim
from emu.contract import records
from phantora_async.coordinator.backpressure import Backpressure
from phantora_async.coordinator.channel import Channel
from phantora_async.coordinator.communicators import named
from phantora_async.coordinator.costs import Costs, CostTable
from phantora_async.coordinator.fact_builder import FactBuilder
from phantora_async.coordinator.network_model import NetsimNetworkModel
from phantora_async.diagnosis.failure_report import Ending, worth_stacks
from phantora_async.diagnosis.progress import SHOW_S, Progress, examples, line
from phantora_async.diagnosis.rank_states import RankState, states
from phantora_async.failures import INTERNAL, Cancelled, Deadlock, ProtocolError, RankDied, RunFailure, Stalled
from phantora_async.liveness.blocked_ranks import BlockedRanks, is_news
from phantora_async.liveness.call_sites import short
from phantora_async.liveness.rank_stacks import Stacks, crash_site, known
from phantora_async.liveness.sleep_detector import Processes, ProcFs
from phantora_async.liveness.stall_watch import Stall, StallWatch
from phantora_async.report import Document, build, to_json
from phantora_async.report.simulator import Usage
from phantora_async.run_spec import RunSpec
from phantora_async.virtual_time import SpeculationPolicy, Stop, Timeline
from profiles import CostModel

TURN = 2_000
"""Facts that virtual time handles before the loop looks at sockets again: some 10 ms."""
SETTLE_S = 0.5
"""After a failure: how long a rank may take to end with a code of its own, which then is the run's."""
STACKS_S = 5.0
"""How long ranks may take to write their stacks: hundreds of them share this machine's processors."""
STACKS_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the run ended. ``report`` is as complete as the run was."""

    exit_code: int
    failure: RunFailure | None
    message: str
    """What happened and all that is known about it, for people; empty if the run ended well."""
    report: Document

    def report_json(self) -> bytes:
        return to_json(self.report)


class Coordinator:
    """``serve``, start the ranks, tell of their ends with ``rank_exited``, await ``finished``, ``close``."""

    def __init__(
        self,
        spec: RunSpec,
        status: Callable[[str], None],
        processes: Processes | None = None,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        """``status`` shows one line of progress; it is called about twice a second. ``notice``: a line to keep."""
        self._spec = spec
        self._status = status
        self._notice = notice
        table = CostTable(spec.cost_table)
        topology = netsim.build(spec.cluster.network, servers=len(spec.servers))
        network = NetsimNetworkModel(topology, netsim.collectives.load_params(spec.cluster.nccl), spec.servers)
        self._fact_builder = FactBuilder(spec.world_size, Costs(CostModel(spec.gpu), table))
        optimistic = spec.clock == "optimistic"
        self._timeline = Timeline(spec.world_size, network, spec.host.queue_depth, optimistic=optimistic)
        self._policy = SpeculationPolicy(self._timeline, spec.speculation)
        self._channels: dict[int, Channel] = {}
        self._exits: dict[int, tuple[int, int]] = {}
        self._queues = Backpressure(spec.world_size)
        self._blocked_ranks = BlockedRanks(self._timeline, self._fact_builder, self._channels, processes or ProcFs())
        self._stacks = Stacks(spec.socket.parent)
        self._stall_watch = StallWatch(
            self._timeline, self._fact_builder, self._channels, self._blocked_ranks, self._stacks
        )
        self._usage = Usage()
        self._server: asyncio.Server | None = None
        self._failure: RunFailure | None = None
        self._states_then: list[RankState] = []
        self._over: asyncio.Future[None] | None = None
        self._turn_due = False
        self._stop = Stop.STARVED
        self._timer: asyncio.TimerHandle | None = None
        self._gc_threshold = gc.get_threshold()

    # ---- the face --------------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Listens; the cost table is there already. Before the first rank starts."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._own_error)
        # Facts and simulated state form no cycles that die: looking for some would cost a third of the time.
        self._gc_threshold = gc.get_threshold()
        gc.set_threshold(200_000, 100, 100)
        self._over = loop.create_future()
        self._server = await loop.create_unix_server(lambda: Channel(self), str(self._spec.socket))
        loop.call_later(SHOW_S, self._show)

    def rank_exited(self, rank: int, returncode: int, signal: int | None) -> None:
        """The process has gone: its exit code, or the signal that ended it."""
        if rank in self._exits:
            return
        self._exits[rank] = returncode, signal or 0
        if returncode or signal:
            self._fail(self._died(rank))
        elif rank not in self._channels:
            self._ended(rank)
        self._check_over()

    async def finished(self) -> Outcome:
        """When all ranks have ended and virtual time with them, or the run cannot go on."""
        assert self._over is not None, "serve comes first"
        try:
            await self._over
        finally:
            asyncio.get_running_loop().set_exception_handler(None)
            gc.set_threshold(*self._gc_threshold)
            if self._timer is not None:
                self._timer.cancel()
            if self._server is not None:
                self._server.close()
        return self._outcome()

    def interrupt(self) -> bool:
        """Ctrl-C: ends the run with a picture of who waits for whom. False if no rank has started yet."""
        if not self._channels:
            return False
        stall = self._stall_watch.look()
        self._fail(Cancelled(f"interrupted{f' while {stall}' if stall else ''}", stall is not None))
        return True

    def close(self) -> None:
        """Hangs up. Only when the ranks have been ended: one that loses its coordinator ends with a code of its own."""
        for channel in list(self._channels.values()):
            channel.close()

    def rank_states(self) -> list[RankState]:
        """What every rank does at this moment, for people."""
        ranks = range(self._spec.world_size)
        snapshot = self._timeline.snapshot()
        return states(snapshot, self._fact_builder, {rank for rank in ranks if self._blocked_ranks.sleeps(rank)})

    # ---- channels' receiver ----------------------------------------------------------------------------------------

    def connected(self, channel: Channel, hello: records.Hello) -> None:
        """See ``channel.Receiver``."""
        if not 0 <= hello.rank < self._spec.world_size:
            raise ProtocolError(hello.rank, f"there are {self._spec.world_size} ranks")
        if hello.rank in self._channels:
            raise ProtocolError(hello.rank, "a second process says it is this rank")
        self._channels[hello.rank] = channel
        self._usage.add_rank(hello.rank, channel.pid)

    def received(self, rank: int, arrived: list[Any], nbytes: int) -> None:
        """See ``channel.Receiver``."""
        news = is_news(arrived)
        self._blocked_ranks.rank_spoke(rank, news)
        if news:
            self._stall_watch.heard(rank)
        facts = self._fact_builder.take(rank, arrived)
        self._timeline.feed(rank, facts)
        self._usage.records += len(arrived)
        self._usage.record_nbytes += nbytes
        self._send(self._fact_builder.outgoing)
        if self._queues.too_long(self._timeline, rank, len(facts)):
            self._channels[rank].pause()
        bye = self._fact_builder.rank_info[rank].bye
        if bye is not None:
            self._usage.goodbye(rank)
            if bye.exit_code:
                self._fail(self._died(rank))
        self._take_turn_soon()

    def closed(self, rank: int) -> None:
        """See ``channel.Receiver``. Without a BYE the program was ended from within (os._exit) or from outside."""
        if rank in self._exits and not any(self._exits[rank]):
            self._ended(rank)
        self._check_over()

    def failed(self, error: Exception) -> None:
        """See ``channel.Receiver``."""
        if isinstance(error, RunFailure):
            self._fail(error)
        else:
            self._own_error(asyncio.get_running_loop(), {"message": "while taking in records", "exception": error})

    # ---- turns of virtual time -------------------------------------------------------------------------------------

    def _take_turn_soon(self) -> None:
        if not self._turn_due and self._over is not None:
            self._turn_due = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn_due = False
        if self._failure is not None:
            return
        try:
            self._stop = self._policy.run(TURN, any(rank_info.questions for rank_info in self._fact_builder.rank_info))
        except RunFailure as failure:
            self._fail(failure)
            return
        answers = self._timeline.take_answers()
        for rank, _ in answers:
            self._fact_builder.answered(rank)
        self._send(answers)
        for rank in self._queues.short_again(self._timeline):
            self._channels[rank].resume()
        if self._stop is Stop.BUDGET:
            self._take_turn_soon()
        elif self._stop is Stop.DRAINED:
            self._drained()
        else:
            self._look_later(self._blocked_ranks.first_look_s())

    def _send(self, answers: list[tuple[int, bytes]]) -> None:
        """Sends and empties the list, one write a rank."""
        parts: dict[int, list[bytes]] = {}
        for rank, encoded in answers:
            parts.setdefault(rank, []).append(encoded)
        answers.clear()
        for rank, encoded_parts in parts.items():
            if rank in self._channels:
                self._channels[rank].send(b"".join(encoded_parts))

    def _drained(self) -> None:
        """No fact is missing and nothing happens any more: all have ended, or those that have not never will."""
        if all(rank_info.bye is not None for rank_info in self._fact_builder.rank_info):
            self._check_over()
        if not self._timeline.all_finished():
            self._fail(Deadlock("deadlock: no rank can ever go on"))

    def _look_ahead(self) -> None:
        """For the status line."""
        try:
            self._policy.look_ahead()
        except RunFailure as failure:
            self._fail(failure)

    # ---- standstill ------------------------------------------------------------------------------------------------

    def _look_later(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        """Virtual time waits for a rank's next fact: may it be asleep for ever?"""
        self._timer = None
        if self._failure is not None or self._turn_due or self._stop is not Stop.STARVED:
            return
        verdict = self._blocked_ranks.look()
        if verdict.asleep:
            if self._queues.paused:
                for rank in self._queues.widen():
                    self._channels[rank].resume()
            elif verdict.stuck_s > self._blocked_ranks.patience_s:
                where = f"{named(verdict.asleep)}, in a lock, a socket or a child of the program's own"
                self._fail(Deadlock(f"deadlock: nobody has moved for {verdict.stuck_s:.0f} s; asleep: {where}"))
                return
            else:
                self._timeline.pass_over(verdict.asleep)
                self._usage.passed_over += 1
                self._take_turn_soon()
                return
        self._look_later(verdict.again_s)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def _ended(self, rank: int) -> None:
        """The rank has ended well without saying so."""
        if self._fact_builder.rank_info[rank].bye is not None:
            return
        try:
            self._timeline.feed(rank, self._fact_builder.end(rank))
        except RunFailure as failure:
            self._fail(failure)
        self._take_turn_soon()

    def _died(self, rank: int) -> RankDied:
        code, signal = self._exits.get(rank, (0, 0))
        bye = self._fact_builder.rank_info[rank].bye
        if not code and not signal and bye is not None:
            code = bye.exit_code
        return RankDied(rank, self._last_words(rank, code, signal), 128 + signal if signal else code)

    def _last_words(self, rank: int, code: int, signal: int) -> str:
        """``rank 3 (server 0) ended with exit code 1: ValueError: no such luck (train.py:17); its log is ...``"""
        bye, log = self._fact_builder.rank_info[rank].bye, self._spec.run_dir / f"rank{rank}.log"
        text = f"rank {rank} (server {self._spec.server_of[rank]}) "
        if signal:
            text += f"was ended by {Signals(signal).name if signal in set(Signals) else f'signal {signal}'}"
            (shown,) = self._timeline.snapshot([rank]).ranks
            crashed, called = crash_site(log), self._fact_builder.site(rank, shown.last_site)
            text += f" at {crashed}" if crashed else f"; its last call before was at {called}" if called else ""
        else:
            text += f"ended with exit code {code}"
        words = bye.payload.rstrip(b"\0").decode(errors="replace") if bye is not None else ""
        return f"{text}{': ' + words if words else ''}; its log is {short(log)}"

    def _fail(self, failure: RunFailure) -> None:
        """The first failure counts, but a rank's own end tells more than what we conclude from it."""
        if self._failure is None:
            self._failure = failure
            self._states_then = self.rank_states()
            if worth_stacks(failure):
                self._ask_stacks()
            else:
                self._stacks.forget()
            certain = failure.exit_code == INTERNAL or isinstance(failure, Cancelled)
            if isinstance(failure, RankDied):
                certain = failure.rank in self._exits
            loop = asyncio.get_running_loop()
            loop.call_later(0.0 if certain else SETTLE_S, self._wind_up, loop.time() + STACKS_S)
        elif isinstance(failure, RankDied) and not isinstance(self._failure, RankDied | Cancelled):
            self._failure = failure

    def _ask_stacks(self) -> None:
        self._stacks.forget()
        for rank, channel in self._channels.items():
            if rank not in self._exits:
                self._stacks.ask(rank, channel.pid)

    def _wind_up(self, until_s: float) -> None:
        """Ends the run when all have told where they are."""
        loop = asyncio.get_running_loop()
        if self._stacks.complete() or loop.time() > until_s:
            self._end()
        else:
            loop.call_later(STACKS_EVERY_S, self._wind_up, until_s)

    def _outcome(self) -> Outcome:
        failure = self._failure
        if failure is None:
            return Outcome(0, None, "", self._report(0, None))
        run_dir = self._spec.run_dir
        now = known(range(self._spec.world_size), self._stacks)
        ending = Ending(failure, self._states_then, now, self._stacks.keep(run_dir))
        document = ending.document(self._fact_builder, run_dir)
        report = self._report(failure.exit_code, document)
        return Outcome(failure.exit_code, failure, ending.message(self._fact_builder, run_dir), report)

    def _report(self, exit_code: int, failure: Document | None) -> Document:
        return build(self._spec, self._timeline.snapshot(), self._fact_builder, self._usage, exit_code, failure)

    def _own_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception that nobody expected, in a callback: the run must not go on without what it should have done."""
        error = context.get("exception")
        text = "".join(traceback.format_exception(error)) if error is not None else ""
        self._fail(RunFailure(f"internal error: {context['message']}\n{text}".rstrip()))

    def _check_over(self) -> None:
        """All processes have gone and everything they said is simulated."""
        if len(self._exits) == self._spec.world_size and self._timeline.all_finished() and self._stop is Stop.DRAINED:
            self._end()

    def _end(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def _show(self) -> None:
        if self._over is None or self._over.done():
            return
        self._usage.sample_next()
        if self._spec.progress and self._stop is Stop.STARVED and not self._turn_due and self._failure is None:
            self._look_ahead()
        stall = self._stall_watch.look() if self._failure is None else None
        if stall is not None:
            self._watch_stall(stall)
        snapshot = self._timeline.snapshot(examples(self._fact_builder))
        self._status(line(Progress.of(snapshot, self._fact_builder), str(stall) if stall else ""))
        asyncio.get_running_loop().call_later(SHOW_S, self._show)

    def _watch_stall(self, stall: Stall) -> None:
        if self._stall_watch.notice_due(stall):
            self._notice(stall.notice())
        limit_s = self._spec.stall_timeout_s
        if limit_s and stall.waiting and stall.for_s > limit_s:
            self._fail(Stalled(f"{stall.notice()}; that is longer than --stall-timeout {limit_s:g}"))
