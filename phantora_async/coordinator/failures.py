"""Decides what follows a failure: the end of the run, a restart by the ranks' launcher, or an early end."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from phantora_async.coordinator.early_end import EarlyEnd
from phantora_async.coordinator.ranks.connections import Connections
from phantora_async.coordinator.reactions import Reactions
from phantora_async.coordinator.restarts import Restarts
from phantora_async.coordinator.run_end import RunEnd
from phantora_async.coordinator.simulation import Simulation
from phantora_async.diagnosis.rank_states import RankState, states
from phantora_async.errors import Deadlock, InternalError, Mismatch, RunFailure
from phantora_async.liveness.blocked_ranks import BlockedRanks
from phantora_async.virtual_time import Snapshot


class Failures:
    def __init__(
        self,
        simulation: Simulation,
        *,
        connections: Connections,
        blocked_ranks: BlockedRanks,
        restarts: Restarts,
        reactions: Reactions,
        early_end: EarlyEnd,
        run_end: RunEnd,
    ) -> None:
        self._timeline = simulation.timeline
        self._fact_builder = simulation.fact_builder
        self._connections = connections
        self._blocked_ranks = blocked_ranks
        self._restarts = restarts
        self._reactions = reactions
        self._early_end = early_end
        self._run_end = run_end

    def fail(self, failure: RunFailure) -> None:
        """Handles a failure: what follows depends on whether a launcher may start the ranks again."""
        if self._run_end.stopped is not None:
            return  # ranks end in the midst of their work
        if self._restarts.failed and isinstance(failure, Deadlock | Mismatch):
            self._restarts.tell()  # others cannot go on without that rank: the launcher decides what becomes of them
            return
        if isinstance(failure, Deadlock) and self._reactions.begin(failure):
            return
        if isinstance(failure, Deadlock) and self._early_end.explains():
            self._run_end.stop(self._early_end.document())
            return
        self.end(failure)

    def end(self, failure: RunFailure) -> None:
        """Ends the run with this failure; nothing else follows."""
        self._run_end.fail(failure, self.rank_states(), self._connections.pids)

    @contextmanager
    def caught(self) -> Iterator[None]:
        """A context in which a RunFailure is caught and given to ``fail``."""
        try:
            yield
        except RunFailure as failure:
            self.fail(failure)

    def unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Ends the run after an unexpected exception in a callback of the loop: part of the callback's work was not
        done.
        """
        error = context.get("exception")
        text = "".join(traceback.format_exception(error)) if error is not None else ""
        self.fail(InternalError(f"internal error: {context['message']}", details=text.rstrip()))

    def rank_states(self, snapshot: Snapshot | None = None) -> list[RankState]:
        """The current activity of every rank. `snapshot`: one of all ranks, if the caller already has it."""
        ranks = [host.rank for host in self._timeline.hosts]
        sleeping = {rank for rank in ranks if self._blocked_ranks.sleeps(rank)}
        stopped = {rank for rank in ranks if self._blocked_ranks.stopped(rank)}
        return states(snapshot or self._timeline.snapshot(), self._fact_builder, sleeping, stopped)
