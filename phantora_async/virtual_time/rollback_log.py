"""How simulated time is taken back: what each rank was like before each instant that may still be invalidated.

While the simulation runs ahead of global virtual time, every rank keeps *chapters*: one for each instant at which
something happened to it, with copies of all its attributes as they were before. Going back to an instant restores the
copy of the oldest chapter from there on. What several ranks share, or is too much to copy, notes how to restore itself
(``undo``); where that concerns other ranks (a collective that has begun had them all), those go back as well. No time
is ever subtracted, and ranks that had nothing to do with the one that goes back keep their history.

Without speculation nothing is written: ``on`` is False.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from phantora_async.virtual_time.entities import Device, Host, StepEnd, Stream, Transfer
from phantora_async.virtual_time.event_queue import EventQueue
from phantora_async.virtual_time.streams import Streams, Undo

_HOST = (
    *("again", "clock_ns", "counters", "devices", "draining", "due", "memory", "polled_again", "polled_ns", "polls"),
    *("silent", "state", "steps", "streams", "used", "waits_for"),
)
_STREAM = (
    *("drain_waiter", "due", "floor_ns", "head", "items", "left", "pending", "queue_limit", "rate", "state"),
    "updated_ns",
)
_DEVICE = (
    *("busy_streams", "busy_until_ns", "compute_ns", "drain_waiter", "host_ns", "idle_ns", "peers_ns", "resident"),
    *("resident_ns", "since_ns", "transfer_ns", "transferring"),
)
_of_host, _of_stream, _of_device = attrgetter(*_HOST), attrgetter(*_STREAM), attrgetter(*_DEVICE)


def _set(target: object, names: Sequence[str], values: Sequence[Any]) -> None:
    for name, value in zip(names, values, strict=True):
        setattr(target, name, value)


class Checkpoint:
    """A rank's part of one instant: how it was before, and what it told the outside, which is held back until then."""

    __slots__ = (
        "answers",
        "at_ns",
        "cursor",
        "devices",
        "host",
        "notes",
        "recordings",
        "steps",
        "streams",
        "turns",
        "undo",
    )

    def __init__(self, host: Host, at_ns: int) -> None:
        self.at_ns = at_ns
        self.turns = 0
        """Events of the simulation in this chapter."""
        self.undo: Undo = []
        self.answers: list[tuple[int, bytes]] = []
        """(number among the host's facts, encoded record)"""
        self.steps: list[StepEnd] = []
        self.notes: list[Transfer] = []
        """Collectives that completed, of the rank whose rhythm is noted."""
        self.host = _of_host(host)
        self.cursor = host.forgotten + host.cursor
        self.recordings = host.recordings.copy()
        self.streams = [
            (stream, len(stream.items), _of_stream(stream)) for stream in (*host.streams.values(), *host.draining)
        ]
        self.devices: list[tuple[Device, list[Stream], Any]] = [
            (device, device.running.copy(), _of_device(device)) for device in host.used
        ]

    def restore(self, host: Host, event_queue: EventQueue) -> None:
        """The host and all that is its own, except what notes itself."""
        host.due = None
        for stream in (*host.streams.values(), *host.draining):
            stream.due = None
        for device in host.used:
            device.__init__(host, device.number)  # type: ignore[misc]  # one that was not used before is as new
        _set(host, _HOST, self.host)
        host.cursor = self.cursor - host.forgotten
        host.recordings = self.recordings
        for stream, count, values in self.streams:
            _set(stream, _STREAM, values)
            del stream.items[count:]
            event_queue.put_back(stream)
        for device, running, values in self.devices:
            _set(device, _DEVICE, values)
            device.running = running
        event_queue.put_back(host)


class RollbackLog:
    __slots__ = ("_demands", "_event_queue", "_streams", "facts", "kept", "on", "restored", "rollbacks", "turns")

    def __init__(self, event_queue: EventQueue, streams: Streams) -> None:
        self._event_queue = event_queue
        self._streams = streams
        self._demands: list[tuple[Host, int]] = []
        self.on = False
        self.restored: list[Host] = []
        """Hosts that have gone back; whoever drives the simulation looks whether their facts have come since."""
        self.rollbacks = 0
        """How often a rank went back."""
        self.turns = 0
        """Events that were taken back."""
        self.facts = 0
        self.kept = 0
        """Chapters that are held."""

    def checkpoint(self, host: Host) -> Checkpoint:
        """The host's chapter of the present instant, opened before anything of the host changes."""
        checkpoints, now_ns = host.checkpoints, self._event_queue.now_ns
        if checkpoints:
            last = checkpoints[-1]
            if last.at_ns == now_ns:
                return last
            assert last.at_ns < now_ns, f"rank {host.rank} is at {last.at_ns} ns already, not at {now_ns} ns"
        opened = Checkpoint(host, now_ns)
        checkpoints.append(opened)
        self.kept += 1
        return opened

    def act(self, host: Host) -> Checkpoint:
        """The same, for an event of the host's own: its marks and steps are noted there."""
        checkpoint = self.checkpoint(host)
        checkpoint.turns += 1
        self._streams.undo = checkpoint.undo
        return checkpoint

    def reach(self, host: Host) -> Checkpoint:
        """The same, for what another rank's event does to the host: if the host is further, it goes back to now."""
        self.go_back(host, self._event_queue.now_ns + 1)
        return self.checkpoint(host)

    def demand(self, host: Host, at_ns: int) -> None:
        """The host has to go back too; for what undoes."""
        self._demands.append((host, at_ns))

    def go_back(self, host: Host, at_ns: int) -> bool:
        """The host, and all whom that concerns, are as they were before this instant. Says whether anything changed."""
        if not host.checkpoints or host.checkpoints[-1].at_ns < at_ns:
            return False
        self._demands.append((host, at_ns))
        self.settle()
        return True

    def settle(self) -> None:
        """Meets all demands, and those that follow from them."""
        while self._demands:
            host, at_ns = self._demands.pop()
            checkpoints = host.checkpoints
            oldest = None
            while checkpoints and checkpoints[-1].at_ns >= at_ns:
                oldest = checkpoints.pop()
                self.kept -= 1
                self.turns += oldest.turns
                for restore, arguments in reversed(oldest.undo):
                    restore(*arguments)
            if oldest is not None:
                self.rollbacks += 1
                self.facts += host.forgotten + host.cursor - oldest.cursor
                oldest.restore(host, self._event_queue)
                self.restored.append(host)
