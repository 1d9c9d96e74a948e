"""What a host does that comes to a RepeatedFact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phantora_async.virtual_time.entities import Device, Host
from phantora_async.virtual_time.entities.repetition import RepeatedFact, Repetition
from phantora_async.virtual_time.event_queue import EventQueue
from phantora_async.virtual_time.rollback_log import RollbackLog


class Repetitions:
    """``execute`` is a handler, see ``hosts``."""

    __slots__ = ("_event_queue", "_handlers", "_heard", "_log", "expanded")

    def __init__(
        self,
        event_queue: EventQueue,
        log: RollbackLog,
        heard: Any,
        handlers: dict[int, Callable[[Host, Any], bool]],
    ) -> None:
        """`heard`: ranks of which somebody hears all that happens to them. `handlers`: of facts one by one."""
        self._event_queue = event_queue
        self._log = log
        self._heard = heard
        self._handlers = handlers
        self.expanded = 0
        """Facts that are in logs because repetitions were executed one by one, beyond those that arrived."""

    def execute(self, host: Host, fact: RepeatedFact) -> bool:
        """As a whole if nothing else can happen to the host and its GPU, else the first round one by one."""
        device = host.stream(fact.stream).device
        now_ns = self._event_queue.now_ns
        if device.repetition is not None:
            device.account(now_ns)
            device.repetition = None
            self._count(host, fact.stands_for - 1)
            return True
        if self._log.on or not self._is_alone(host, device):
            return self._one_by_one(host, fact)
        begins_ns = now_ns - fact.host_ns
        device.account(now_ns)
        device.repetition = Repetition(fact.rhythm, begins_ns)
        host.retry = True
        host.clock_ns = begins_ns + fact.times * fact.rhythm.round_ns
        self._event_queue.push(host.clock_ns, host)
        return False

    def _is_alone(self, host: Host, device: Device) -> bool:
        """Is the GPU without work, the only one of the host's, and both as fast as always?"""
        return (
            host.used == (device,)
            and not device.busy_streams
            and host.pace is None
            and device.pace is None
            and host.rank not in self._heard
        )

    def _one_by_one(self, host: Host, fact: RepeatedFact) -> bool:
        rest = (fact._replace(times=fact.times - 1),) if fact.times > 1 else ()
        host.log[host.cursor : host.cursor + 1] = (*fact.facts, *rest)
        self.expanded += len(fact.facts) + len(rest) - 1
        first = fact.facts[0]
        return self._handlers[first.kind](host, first)

    def _count(self, host: Host, more: int) -> None:
        """The host has executed so many facts that its log does not have."""
        host.forgotten += more
        if self._log.undo is not None:
            self._log.undo.append((_uncount, (host, more)))


# ---- undo entries --------------------------------------------------------------------------------------------------


def _uncount(host: Host, more: int) -> None:
    host.forgotten -= more
