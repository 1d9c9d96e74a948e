"""Runs virtual time in short turns of the event loop, and looks at ranks while it stands still."""

from __future__ import annotations

import asyncio
from time import monotonic

from phantora_async.coordinator import standstill
from phantora_async.coordinator.early_end import EarlyEnd
from phantora_async.coordinator.failures import Failures
from phantora_async.coordinator.ranks.connections import Connections
from phantora_async.coordinator.restarts import Restarts
from phantora_async.coordinator.run_end import RunEnd
from phantora_async.coordinator.simulation import Simulation
from phantora_async.coordinator.standstill import Standstill
from phantora_async.errors import Deadlock, Mismatch
from phantora_async.liveness.blocked_ranks import BlockedRanks
from phantora_async.liveness.bystanders import Bystanders
from phantora_async.liveness.patience import limit_s
from phantora_async.virtual_time import SpeculationPolicy, Stop

TURN = 2_000
"""The events that virtual time executes before the loop looks at sockets again: about 10 ms."""
VISITED_S = 3.0
"""The seconds that a rank may take to start whose GPU another rank's process has used: most likely nobody becomes
it.
"""
TIMER_S = 0.001
"""The precision of timers."""
LOOK_AGAIN_S = 0.05
"""The seconds between looks at ranks that go on after another one has failed."""


class Turns:
    def __init__(
        self,
        simulation: Simulation,
        *,
        connections: Connections,
        blocked_ranks: BlockedRanks,
        bystanders: Bystanders,
        restarts: Restarts,
        early_end: EarlyEnd,
        run_end: RunEnd,
        failures: Failures,
    ) -> None:
        spec = simulation.spec
        self._spec = spec
        self._timeline = simulation.timeline
        self._policy = SpeculationPolicy(simulation.timeline, spec.speculation)
        self._fact_builder = simulation.fact_builder
        self._trace = simulation.trace
        self._connections = connections
        self._blocked_ranks = blocked_ranks
        self._standstill = Standstill(
            simulation.timeline, connections, blocked_ranks, bystanders, spec.stall_timeout_s, simulation.mirrored_ranks
        )
        self._patience_s = limit_s(spec.stall_timeout_s, standstill.PATIENCE_S)
        self._bystanders = bystanders
        self._restarts = restarts
        self._early_end = early_end
        self._run_end = run_end
        self._failures = failures
        self._due = False
        self._stop = Stop.STARVED
        """The reason for which the last turn ended."""
        self._look_timer: asyncio.TimerHandle | None = None
        self._look_timer_s = 0.0
        """The real time at which it ends."""
        self._look_due_s = 0.0
        """The real time of the next look. Turns put it off far more often than it comes, so the timer stays as it is if
        it ends earlier, and is then started again.
        """
        self._computes_since_s: float | None = None
        """The real time since when there is more to compute; None: there is nothing."""

    @property
    def passed_over(self) -> int:
        """The number of times that virtual time continued without ranks that slept where no record says so."""
        return self._standstill.passed_over

    @property
    def stand_still(self) -> bool:
        """True if virtual time can decide nothing until more records come."""
        return not self._due and self._stop in (Stop.STARVED, Stop.DRAINED)

    def computes_for_s(self) -> float:
        """The real seconds for which there has been more to compute; 0: there is nothing."""
        return 0.0 if self._computes_since_s is None else monotonic() - self._computes_since_s

    def take_soon(self) -> None:
        if not self._due:
            self._due = True
            if self._computes_since_s is None:
                self._computes_since_s = monotonic()
            asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        self._due = False
        if self._run_end.over.is_set():
            if isinstance(self._run_end.failure, Mismatch):
                self._answer_after_mismatch()
            return
        with self._failures.caught():
            self._stop = self._policy.run(TURN)
            if self._stop is not Stop.BUDGET:
                self._computes_since_s = None
            self._connections.note_waits()
            answers = self._connections.take_answers()
            if self._fact_builder.profiled:
                answers = self._trace.take_answers() + answers
            self._connections.send(answers)
            if answers:
                self._standstill.told(answers)
            self._connections.resume()
            if self._early_end.reached(self._stop):
                self._run_end.stop(self._early_end.document())
            elif self._stop is Stop.BUDGET or (self._stop is Stop.STARVED and self._standstill.goes_on()):
                self.take_soon()
            elif self._stop is Stop.STARVED:
                self._look_later(self._standstill.first_look_s())
            elif self._timeline.all_finished():
                self.check_over()
            elif self._spec.launcher:
                self._look_later(LOOK_AGAIN_S)  # another process of a rank that has ended may come
            else:
                raise Deadlock("deadlock: no rank can ever continue")

    def _answer_after_mismatch(self) -> None:
        """Goes on as far as what has come allows: a member that waits for an answer may still say what it calls."""
        with self._failures.caught():
            if self._policy.run(TURN) is Stop.BUDGET:
                self.take_soon()
            self._connections.send(self._connections.take_answers())

    def look_ahead(self) -> None:
        """Goes ahead of a rank for which virtual time waits, for what is shown."""
        if self._stop is Stop.STARVED and not self._due:
            self._policy.look_ahead()

    def check_over(self) -> None:
        """All processes have ended, and virtual time has executed everything that they sent."""
        exits = len(self._run_end.exits)
        if exits == self._spec.processes and self._timeline.all_finished() and self._stop is Stop.DRAINED:
            self._run_end.over.set()

    def close(self) -> None:
        if self._look_timer is not None:
            self._look_timer.cancel()

    # ---- standstill ------------------------------------------------------------------------------------------------

    def _look_later(self, delay_s: float) -> None:
        self._look_due_s = monotonic() + delay_s
        if self._look_timer is not None:
            if self._look_timer_s <= self._look_due_s:
                return
            self._look_timer.cancel()
        self._start_look_timer(delay_s)

    def _start_look_timer(self, delay_s: float) -> None:
        self._look_timer_s = monotonic() + delay_s
        self._look_timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        self._look_timer = None
        left_s = self._look_due_s - monotonic()
        if left_s > TIMER_S:
            self._start_look_timer(left_s)
            return
        if self._run_end.over.is_set() or not self.stand_still:
            return
        if self._stop is Stop.DRAINED:
            self._look_for_processes()
            return
        self._blocked_ranks.gone = self._restarts.failed
        if self._restarts.stands_at_end_of() is not None:
            if not self._restarts.told:
                self._look_after_failure()
            return
        with self._failures.caught():
            starved = self._timeline.starved
            if starved is not None and self._spec.launcher and self._nobody_starts(starved):
                self._do_without(starved)
                return
            again_s = self._standstill.look()
            if again_s is None:
                self.take_soon()
            else:
                self._look_later(again_s)

    def _nobody_starts(self, rank: int) -> bool:
        """Returns true if no process has become this rank, though the others have waited for long and no other process
        works.
        """
        user = self._fact_builder.user_of_gpu(rank)
        patience_s = self._patience_s if user is None else min(self._patience_s, VISITED_S)
        if not self._restarts.nobody_starts(rank, self._blocked_ranks, patience_s):
            return False
        if self._bystanders.work():
            self._restarts.news()
            return False
        return True

    def flushed(self) -> None:
        """A rank that was asked for the work that nothing follows has none."""
        with self._failures.caught():
            if self._stop is Stop.STARVED and not self._due and self._standstill.flushed():
                self.take_soon()

    def _look_for_processes(self) -> None:
        """Handles a standstill in which ranks wait and others have ended: their launcher may start the next processes
        of these.
        """
        with self._failures.caught():
            if self._timeline.all_finished():
                return
            if self._restarts.failed and not self._restarts.told:
                self._restarts.tell()  # virtual time will not come to its end
            if self._restarts.idle_s() > self._patience_s and not self._restarts.next_ones:
                if not self._bystanders.work():
                    raise Deadlock("deadlock: no rank can ever continue")
                self._restarts.news()
            self._look_later(LOOK_AGAIN_S)

    def _do_without(self, rank: int) -> None:
        """The launcher has started fewer ranks than there are GPUs, or one process uses several. If the rank comes
        after all, it begins then.
        """
        if self._fact_builder.user_of_gpu(rank) is None:
            self._fact_builder.goes_without(rank, self._patience_s)
        self._connections.rank_ended(rank)
        self.take_soon()

    def _look_after_failure(self) -> None:
        """Handles a standstill where the launcher notices that a rank has failed. The launcher is told when the other
        ranks have come to this instant, too.
        """
        if self._blocked_ranks.all_wait():
            self._restarts.tell()
        else:
            self._look_later(LOOK_AGAIN_S)
