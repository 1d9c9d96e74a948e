"""Handles ranks that a launcher started: one that fails does not end the run if the launcher starts the job again.

The launcher decides, in real time, as on a cluster: torchrun's agent ends the other ranks and starts all of them again,
as often as `--max-restarts` says. It is *told* of the end of a process when virtual time has come to the instant at
which it would notice, so that the other ranks have done until then what they would do on a cluster. A failure is the
run's end when the launcher has ended, or does nothing for PATIENCE_S. Processes that start meanwhile are *held*: they
wait until each rank has one and all former ones have ended. Then all ranks go on at one instant of virtual time.

A launcher may also start one job after the other (`mp.spawn` twice, a shell script with two commands), or the next
process of a single rank. It is held until virtual time has executed what the rank's former process sent.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import Any, NamedTuple

from phantora_async.coordinator.ranks.connections import Connections
from phantora_async.coordinator.simulation import Simulation
from phantora_async.ingest.channel import Channel
from phantora_async.liveness.blocked_ranks import BlockedRanks
from phantora_async.liveness.patience import limit_s
from phantora_async.virtual_time import UnseenFact

PATIENCE_S = 60.0
"""The real seconds for which a launcher may do nothing after a rank has failed. torchrun waits 30 s for ranks that
ignore SIGTERM.
"""


TOGETHER_S = 0.5
"""The real seconds within which ranks of a following job must come to start at one instant of virtual time."""


class Restart(NamedTuple):
    """One restart of all ranks by the launcher."""

    rank: int
    """The rank that failed first."""
    exit_code: int
    """The exit code of ``rank``: 128 + S if signal S ended it."""
    at_ns: int
    """The instant at which the ranks started again."""


@dataclass(frozen=True, slots=True)
class Held:
    """A process that says it is a rank whose former process has ended."""

    channel: Channel
    arrived: list[tuple[list[Any], int]]
    """The records that it has sent, each with its size on the wire."""


class Restarts:
    def __init__(self, simulation: Simulation, connections: Connections, exits: dict[int, Any]) -> None:
        """`exits`: how processes of ranks have ended."""
        self._patience_s = limit_s(simulation.spec.stall_timeout_s, PATIENCE_S)
        self._delay_ns = simulation.spec.restart_delay_ns
        self._timeline = simulation.timeline
        self._fact_builder = simulation.fact_builder
        self._connections = connections
        self._exits = exits
        self.failed: dict[int, None] = {}
        """The ranks whose process has failed, or was ended by the launcher, since the ranks were started last."""
        self.told = False
        """The launcher knows."""
        self.ends: asyncio.Queue[int] = asyncio.Queue()
        """The ranks of whose end the launcher is to be told now."""
        self.done: list[Restart] = []
        self._time_held: set[int] = set()
        """The ranks at whose end virtual time stops."""
        self._untold: list[int] = []
        self._held: dict[int, Held] = {}
        """The processes that are held, by rank."""
        self._news_s = 0.0
        self._held_s = 0.0

    @property
    def first(self) -> int | None:
        """The rank that failed first; None if none has failed."""
        return next(iter(self.failed), None)

    # ---- a rank fails ----------------------------------------------------------------------------------------------

    def fail(self, rank: int, untold: bool) -> None:
        """Records that the rank's process has failed, or was ended by the launcher. `untold`: the launcher does not
        know.
        """
        self.failed[rank] = None
        self.news()
        if untold:
            self._untold.append(rank)
            if self.told:
                self.tell()
        self._connections.drain(rank)
        self._hold_time(rank)

    def _hold_time(self, rank: int) -> None:
        """Stops virtual time where the launcher would notice the end, once all that the process has sent is here."""
        if not self._connections.connected(rank) and rank not in self._time_held:
            self._time_held.add(rank)
            self._timeline.feed(rank, [UnseenFact.of(self._delay_ns)])

    def stands_at_end_of(self) -> int | None:
        """The rank at whose end virtual time stands; None if it stands elsewhere. Ranks that sleep may stand at this
        instant, too: without them virtual time would come no further.
        """
        starved, now_ns = self._timeline.starved, self._timeline.now_ns
        if starved in self.failed:
            return starved
        for rank in self.failed:
            host = self._timeline.hosts[rank]
            if rank in self._time_held and not self._timeline.queued(rank) and host.clock_ns <= now_ns:
                return rank
        return None

    def tell(self) -> None:
        """Says that the launcher is to be told of all ends. The rank at whose end virtual time stands has failed
        first.
        """
        stands_at = self.stands_at_end_of()
        if not self.told and stands_at is not None:
            self.failed = {stands_at: None} | self.failed
        self.told = True
        for rank in self._untold:
            self.ends.put_nowait(rank)
        self._untold.clear()

    def news(self) -> None:
        """Records that something has happened, in real time."""
        self._news_s = monotonic()

    def idle_s(self) -> float:
        """The real seconds since something has happened."""
        return monotonic() - self._news_s

    def nobody_starts(self, rank: int, blocked_ranks: BlockedRanks, patience_s: float) -> bool:
        """Returns true if no process has become this rank, while all others have waited for `patience_s`."""
        started = self._connections.pids
        if rank in started or not started or self.idle_s() < patience_s:
            return False
        blocked_ranks.gone = [other for other in range(len(self._fact_builder.rank_info)) if other not in started]
        waiting = blocked_ranks.all_wait()
        blocked_ranks.gone = self.failed
        return waiting

    def given_up(self) -> bool:
        """Returns true if a rank has failed and its launcher does nothing."""
        return bool(self.failed) and monotonic() - self._news_s > self._patience_s

    # ---- ranks start again -----------------------------------------------------------------------------------------

    def hold(self, channel: Channel) -> bool:
        """Handles a new connection. Returns true if the process is held, because the rank's former process has
        ended.
        """
        rank = channel.hello.rank
        if self.failed:
            if self._connections.connected(rank) and not self._has_ended(rank):
                return False
        elif not self._ended_well(rank):
            return False
        self._held[rank] = Held(channel, [])
        self._held_s = monotonic()
        self.news()
        return True

    def keep(self, channel: Channel, arrived: list[Any], nbytes: int) -> bool:
        """Handles new records. Returns true if they are kept, because the process is held."""
        held = self._held.get(channel.rank)
        if held is None or held.channel is not channel:
            return False
        held.arrived.append((arrived, nbytes))
        return True

    def closed(self, channel: Channel) -> bool:
        """Handles the end of a connection. Returns true if the process was held."""
        rank = channel.rank
        held = self._held.get(rank)
        if held is None or held.channel is not channel:
            return False
        del self._held[rank]
        self.news()
        return True

    def former_closed(self, rank: int) -> None:
        """Handles the end of the connection of a process that is not held."""
        if rank in self.failed:
            self._hold_time(rank)

    def _has_ended(self, rank: int) -> bool:
        return rank in self._exits or self._fact_builder.rank_info[rank].bye is not None

    def _ended_well(self, rank: int) -> bool:
        known = self._fact_builder.rank_info
        return 0 <= rank < len(known) and known[rank].bye is not None

    # ---- the next process of a rank --------------------------------------------------------------------------------

    @property
    def next_ones(self) -> bool:
        """Returns true if processes are held whose ranks' former processes have ended well."""
        return bool(self._held) and not self.failed

    def begin_again(self) -> list[Held]:
        """Returns the processes that go on at the instant at which virtual time stands, and are to be connected: all
        that are held, once no other has come for TOGETHER_S and the work of the former ones is done.
        """
        ready = monotonic() - self._held_s > TOGETHER_S and all(
            not self._connections.connected(rank) and self._timeline.has_ended(rank) for rank in self._held
        )
        if not ready:
            return []
        held = [self._held.pop(rank) for rank in sorted(self._held)]
        for process in held:
            rank = process.channel.hello.rank
            self._connections.begin_again(rank)
            self._timeline.begin_again(rank)
            self._fact_builder.begin_again(rank)
            self._exits.pop(rank, None)
        return held

    # ---- all ranks start again -------------------------------------------------------------------------------------

    def complete(self) -> bool:
        """Returns true if each rank that had a process has a new one, and all former ones have gone."""
        return bool(self.failed and self._held) and all(
            rank in self._held and self._has_ended(rank) and not self._connections.connected(rank)
            for rank in self._connections.pids
        )

    def restart(self, exit_code: int, ended_ns: int = 0) -> list[Held]:
        """Lets all ranks go on. Returns their processes, which are to be connected. `exit_code`: of the rank that
        failed; `ended_ns`: when it did, if later than its last record says. Raises RunFailure if the ranks cannot
        continue.
        """
        first = self.first
        assert first is not None, "no rank has failed"
        ranks = sorted(self._held)
        queued = sum(map(self._timeline.queued, ranks))
        not_before_ns = ended_ns + self._delay_ns if ended_ns else 0
        at_ns = self._timeline.restart(first, ranks, not_before_ns)
        self._timeline.take_answers()
        self._fact_builder.restart(ranks, self._timeline.hosts[first].steps)
        self._connections.restart(queued)
        for rank in ranks:
            self._exits.pop(rank, None)
        self.done.append(Restart(first, exit_code, at_ns))
        held = [self._held[rank] for rank in ranks]
        self._held = {}
        self._time_held = set()
        self.failed = {}
        self.told = False
        return held
