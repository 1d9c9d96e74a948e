"""Who listens to virtual time, and when listeners are told.

Listeners are told what is final, and nothing twice. While the simulation runs ahead of global virtual time, a rank's
events wait in its checkpoints. A rollback drops them with the checkpoint, and what is executed instead makes others. So
a listener hears of no rollback, and what it is told in the end is what a simulation in order of time tells. Of hosts
that meet at one instant, though, any may be told to have waited there for no time.

Each rank's events come in the order of virtual time. The ranks' events come in one order of virtual time as long as
nothing is simulated ahead, else rank by rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from phantora_async.virtual_time.entities import Host
from phantora_async.virtual_time.events import Event, StepDone
from phantora_async.virtual_time.rollback_log import Checkpoint, RollbackLog


class Listener(Protocol):
    def on(self, rank: int, event: Event) -> None:
        """It must not change virtual time, nor run it."""


class Announcer:
    """``heard`` is looked up wherever something happens, before the event is made: without listeners it is empty."""

    __slots__ = ("_log", "_steps", "heard")

    def __init__(self, log: RollbackLog) -> None:
        self._log = log
        self._steps: list[Listener] = []
        self.heard: dict[int, tuple[Listener, ...]] = {}
        """By rank: who hears its events. This one dict is filled; it is never replaced."""

    def listen(self, listener: Listener, ranks: Iterable[int]) -> None:
        """From now on the listener is told of all that happens to these ranks, too."""
        for rank in ranks:
            heard = self.heard.get(rank, ())
            if listener not in heard:
                self.heard[rank] = (*heard, listener)

    def listen_to_steps(self, listener: Listener) -> None:
        """The listener is told when a step of any rank is done, and nothing else."""
        self._steps.append(listener)

    def tell(self, host: Host, event: Event) -> None:
        """It has happened to the host's rank at the present instant."""
        if self._log.on:
            self._log.checkpoint(host).told.append(event)
        else:
            self._deliver(host.rank, event)

    def release(self, host: Host, checkpoint: Checkpoint) -> None:
        """What has happened until now at the checkpoint's instant is final."""
        told, checkpoint.told = checkpoint.told, []
        for event in told:
            self._deliver(host.rank, event)

    def _deliver(self, rank: int, event: Event) -> None:
        if type(event) is StepDone:
            for listener in self._steps:
                listener.on(rank, event)
        for listener in self.heard.get(rank, ()):
            listener.on(rank, event)
