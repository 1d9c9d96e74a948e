"""Creations of communicators in virtual time: all members' hosts go on when the last of them has asked.

Who the members are, and the answers, are found when the questions arrive in real time (``ingest.communicators``). Here
is how long the hosts wait.
"""

from __future__ import annotations

from phantora_async.virtual_time.entities import Host
from phantora_async.virtual_time.event_queue import EventQueue
from phantora_async.virtual_time.facts import CommCreation
from phantora_async.virtual_time.rollback_log import RollbackLog


class CommCreations:
    __slots__ = ("_event_queue", "_log", "_waiting")

    def __init__(self, event_queue: EventQueue, log: RollbackLog) -> None:
        self._event_queue = event_queue
        self._log = log
        self._waiting: dict[CommCreation, list[Host]] = {}

    def arrive(self, host: Host, creation: CommCreation) -> bool:
        """The host asks for the communicator. False: it has to wait for others; else those that waited go on now."""
        arrived = self._waiting.setdefault(creation, [])
        arrived.append(host)
        now_ns, log = self._event_queue.now_ns, self._log
        if log.on:
            log.checkpoint(host).undo.append((arrived.remove, (host,)))
            last_ns = max(other.clock_ns for other in arrived)
            if len(arrived) == creation.size and last_ns > now_ns:
                # The host that asked last in virtual time asks again, and ends the creation then.
                for other in [other for other in arrived if other.clock_ns == last_ns]:
                    log.go_back(other, last_ns)
        if len(arrived) < creation.size:
            return False
        del self._waiting[creation]
        if log.on:
            for other in arrived:
                log.reach(other).undo.append((self._undo_end, (creation, arrived, now_ns)))
        self._event_queue.woken.extend(other for other in arrived if other is not host)
        return True

    def _undo_end(self, creation: CommCreation, arrived: list[Host], at_ns: int) -> None:
        """Called when a member goes back. The first call makes all wait again and sends the other members back."""
        if creation not in self._waiting:
            self._waiting[creation] = arrived
            for host in arrived:
                self._log.demand(host, at_ns)

    def forget(self) -> None:
        """Nobody waits any more: all processes have ended."""
        self._waiting.clear()

    def waiting(self, creation: CommCreation) -> tuple[int, ...]:
        """Ranks that wait for the others to ask."""
        return tuple(host.rank for host in self._waiting.get(creation, ()))
