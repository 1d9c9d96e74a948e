"""The status of a run that the user sees: the status line, and the rank that the others wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from phantora_async.coordinator.live_state import LiveState
from phantora_async.coordinator.simulation import Simulation
from phantora_async.diagnosis.progress import Progress, clock, examples, line, phase
from phantora_async.errors import Deadlock, Stalled, WaitsForValue
from phantora_async.liveness.loop_watch import LoopWatch
from phantora_async.liveness.patience import STALL_S, limit_s
from phantora_async.liveness.poll_watch import PollWatch
from phantora_async.liveness.stall_watch import StallWatch


class Status(NamedTuple):
    line: str
    """The status line, shown in place of the previous one; "" if nobody wants it."""
    notice: str
    """A line for a log that ranks have waited long, and for whom; "" most of the time."""
    stall: str
    """The part of the line on ranks that others wait for, and on loops that do not end."""


class StatusView:
    def __init__(
        self,
        simulation: Simulation,
        *,
        stall_watch: StallWatch,
        poll_watch: PollWatch,
        loop_watch: LoopWatch,
        live_state: LiveState,
        compiling: Callable[[], Sequence[int]],
    ) -> None:
        """`compiling`: returns the ranks that compile now."""
        self._timeline = simulation.timeline
        self._fact_builder = simulation.fact_builder
        self._stall_watch = stall_watch
        self._poll_watch = poll_watch
        self._loop_watch = loop_watch
        self._limit_s = limit_s(simulation.spec.stall_timeout_s, STALL_S)
        self._live_state = live_state
        self._compiling = compiling

    def look(self, *, line_wanted: bool, stalls: bool = True) -> Status:
        """The current status. `line_wanted`: with its line, which takes long with many ranks. `stalls`: also look for
        ranks that others wait for, and for loops that do not end; raises Stalled, Deadlock and WaitsForValue when
        these have taken too long.
        """
        loop = self._loop_watch.look() if stalls else None
        if loop is not None and loop.limit:
            raise WaitsForValue(f"{loop} ({loop.limit})", details=f"  {loop.explanation()}")
        if stalls and (polling := self._poll_watch.look()) is not None:
            deadlock = Deadlock(f"deadlock: {polling}")
            deadlock.polling = polling.ranks
            raise deadlock
        stall = self._stall_watch.look() if stalls else None
        notice = ""
        if stall is not None:
            if self._stall_watch.notice_due(stall):
                notice = stall.notice()
            if stall.counts and stall.for_s > self._limit_s:
                raise Stalled(f"{stall.notice()}; that is longer than --stall-timeout {self._limit_s:g}")
        stalled = str(loop or stall or "")
        if not line_wanted:
            return Status("", notice, stalled)
        progress = Progress.of(self._timeline.snapshot(examples(self._fact_builder)), self._fact_builder)
        at = f"{clock(self._live_state.elapsed_s)} | {phase(progress, self._compiling(), self._live_state.whole())}"
        return Status(f"{at} | {line(progress, stalled)}", notice, stalled)
