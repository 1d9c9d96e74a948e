"""Lets ranks react when something has died and nothing else can happen: NCCL's watchdogs end them, in virtual time.

Virtual time has come to an end: every rank waits for work that is never done. Each is told so, and its watchdogs go on
alone (``emu/hook/streams/watchdog_clock.c``): what they do then is PyTorch's own. The rank whose watchdog was the first
in virtual time has failed first. The others are awaited, so that each can write its Flight Recorder; then the launcher
is told, or the run ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from emu.contract import records
from phantora_async.coordinator.ranks.connections import Connections
from phantora_async.errors import Deadlock
from phantora_async.faults import Death, Fault, begin_ns
from phantora_async.liveness.patience import limit_s
from phantora_async.virtual_time import Timeline
from phantora_async.wording import named, seconds

PATIENCE_S = 90.0
"""The real seconds for which watchdogs may do nothing. PyTorch's wait up to 60 s for a Flight Recorder to be
written.
"""


class Reactions:
    def __init__(
        self,
        timeline: Timeline,
        connections: Connections,
        faults: Sequence[Fault],
        stall_timeout_s: float | None = None,
    ) -> None:
        """`stall_timeout_s`: see ``limit_s``."""
        self._patience_s = limit_s(stall_timeout_s, PATIENCE_S)
        self._timeline = timeline
        self._connections = connections
        self._deaths = [fault for fault in faults if isinstance(fault, Death)]
        self._told: set[int] = set()
        """The ranks that have been told, and whose end is awaited."""
        self._clocks: dict[int, int] = {}
        """The instants to which their watchdogs have come, by rank."""
        self._failed: dict[int, bool] = {}
        self._ended_ns = 0
        self._why: Deadlock | None = None
        self._news_s = 0.0

    @property
    def going_on(self) -> bool:
        return self._why is not None

    def begin(self, why: Deadlock) -> bool:
        """Starts the reactions because nothing can happen any more. Returns false if nothing that has died explains it:
        then the run ends.
        """
        if self.going_on:
            return True
        now_ns = self._timeline.now_ns
        if not any(begin_ns(fault) <= now_ns for fault in self._deaths):
            return False
        self._why = why
        self._news_s = monotonic()
        for rank in self._connections.pids:
            host = self._timeline.hosts[rank]
            if host.pace is not None and host.pace.is_dead(now_ns):
                continue
            undone = host.undone_recordings()
            payload = b"".join(number.to_bytes(8, "little") for number in undone)
            self._told.add(rank)
            self._connections.send([(rank, records.Stalled.encode(0, now_ns, len(undone), 0, payload=payload))])
        return True

    def clock(self, rank: int, at_ns: int) -> None:
        """Records that a watchdog of the rank has waited until this instant."""
        self._clocks[rank] = max(at_ns, self._clocks.get(rank, 0))
        self._news_s = monotonic()

    def failed(self, rank: int, untold: bool) -> bool:
        """Records that the rank has ended. Returns true if others are still to be awaited. `untold`: its launcher does
        not know.
        """
        self._failed[rank] = untold
        self._news_s = monotonic()
        return not self.over()

    def over(self) -> bool:
        """Returns true if all ranks that were told have ended, or nothing has happened for long."""
        return not self._told.difference(self._failed) or monotonic() - self._news_s > self._patience_s

    def text(self) -> str:
        """Says which ranks NCCL's watchdogs ended, and when, for the message; "" if they ended none."""
        ended = [rank for rank in self._failed if rank in self._clocks]
        if not ended:
            return ""
        first = seconds(min(self._clocks[rank] for rank in ended))
        return f"NCCL's watchdogs ended {named(sorted(ended))}, the first at {first} of virtual time"

    def end(self) -> tuple[dict[int, bool], Deadlock]:
        """Ends the reactions: the launcher decides what follows, or the run ends. Returns the ranks that have ended, in
        the order of virtual time, each with whether its launcher does not know; and why they could not go on.
        """
        assert self._why is not None, "nothing goes on"
        why, self._why = self._why, None
        order = sorted(self._failed, key=lambda rank: (self._clocks.get(rank, 0), rank))
        failed = {rank: self._failed[rank] for rank in order}
        self._ended_ns = self._clocks.get(order[0], 0) if order else 0
        self._told, self._clocks, self._failed = set(), {}, {}
        return failed, why

    def take_ended_ns(self) -> int:
        """Returns once the instant of virtual time at which the first of them ended; 0: no watchdog ended any."""
        ended_ns, self._ended_ns = self._ended_ns, 0
        return ended_ns
