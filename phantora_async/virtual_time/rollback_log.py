"""How simulated time is taken back, rank by rank.

While the simulation runs ahead of global virtual time, every rank keeps *checkpoints*: one for each instant at which
something happened to it, with the saved fields of its host, streams and devices as they were before (see
``entities.fields``). To go back to an instant, the rank restores its oldest checkpoint from that instant on. What
several ranks share, or is too much to copy, is undone through the checkpoints' *undo entries*, the latest first. An
entry can demand that other ranks go back, too: undoing the begin of a collective sends all its members back. Times are
never computed back, and ranks that the entries do not name keep their history.

Without speculation nothing is written: ``on`` is False.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from phantora_async.virtual_time.entities import Device, Host, Stream
from phantora_async.virtual_time.entities.fields import Saver
from phantora_async.virtual_time.event_queue import EventQueue
from phantora_async.virtual_time.events import Event
from phantora_async.virtual_time.facts import Collective

Undo = list[tuple[Callable[..., Any], tuple[Any, ...]]]
"""Calls that undo changes, in the order in which these were made."""
_HOST, _STREAM, _DEVICE = Saver(Host), Saver(Stream), Saver(Device)


class Answer(NamedTuple):
    fact: int
    """The question's number among the host's facts, from the run's start."""
    encoded: bytes


class Checkpoint:
    """A rank at one instant: its state before, and what it has told the outside since, which is held until final."""

    __slots__ = (
        "answers",
        "at_ns",
        "completed",
        "devices",
        "events",
        "facts",
        "host",
        "streams",
        "told",
        "undo",
    )

    def __init__(self, host: Host, at_ns: int) -> None:
        self.at_ns = at_ns
        self.events = 0
        """Events of the rank at this instant."""
        self.undo: Undo = []
        self.answers: list[Answer] = []
        self.completed: list[Collective] = []
        self.told: list[Event] = []
        """For listeners, see ``announcer``."""
        self.facts = host.facts_done
        self.host = _HOST.save(host)
        self.streams = [(stream, _STREAM.save(stream)) for stream in (*host.streams.values(), *host.draining)]
        self.devices = [(device, _DEVICE.save(device)) for device in host.used]

    def restore(self, host: Host, event_queue: EventQueue) -> None:
        """The saved fields of the host and of all that is its own."""
        for stream in (*host.streams.values(), *host.draining):
            stream.due = None
        for device in host.used:
            _DEVICE.reset(device)  # for those that had not been used then
        _HOST.restore(host, self.host)
        host.cursor = self.facts - host.forgotten
        for stream, values in self.streams:
            _STREAM.restore(stream, values)
            event_queue.put_back(stream)
        for device, values in self.devices:
            _DEVICE.restore(device, values)
        event_queue.put_back(host)


class RollbackLog:
    __slots__ = (
        "_demands",
        "_event_queue",
        "events",
        "facts",
        "kept",
        "on",
        "restored",
        "rollbacks",
        "undo",
    )

    def __init__(self, event_queue: EventQueue) -> None:
        self._event_queue = event_queue
        self._demands: list[tuple[Host, int]] = []
        self.on = False
        self.undo: Undo | None = None
        """Of the checkpoint of whose host's event is executed; None while nothing is written."""
        self.restored: list[Host] = []
        """Hosts that have gone back. ``speculation`` looks whether their facts have come since."""
        self.rollbacks = 0
        """How often a rank went back."""
        self.events = 0
        """Events that were taken back."""
        self.facts = 0
        """Facts that were taken back."""
        self.kept = 0
        """Checkpoints that are held."""

    def checkpoint(self, host: Host) -> Checkpoint:
        """The host's checkpoint of the present instant, opened before anything of the host changes."""
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
        """The checkpoint for an event of the host's own: the undo entries of what follows go there."""
        checkpoint = self.checkpoint(host)
        checkpoint.events += 1
        self.undo = checkpoint.undo
        return checkpoint

    def reach(self, host: Host) -> Checkpoint:
        """The checkpoint for what another rank's event does to the host: if the host is ahead, it goes back to now."""
        self.go_back(host, self._event_queue.now_ns + 1)
        return self.checkpoint(host)

    def demand(self, host: Host, at_ns: int) -> None:
        """The host has to go back, too. For undo entries; ``settle`` does it."""
        self._demands.append((host, at_ns))

    def go_back(self, host: Host, at_ns: int) -> bool:
        """The host, and all that must go back with it, are as they were before this instant. False: nothing changed."""
        if not host.checkpoints or host.checkpoints[-1].at_ns < at_ns:
            return False
        self._demands.append((host, at_ns))
        self.settle()
        return True

    def settle(self) -> None:
        """Meets all demands, and those that their undo entries make."""
        while self._demands:
            host, at_ns = self._demands.pop()
            checkpoints = host.checkpoints
            oldest = None
            while checkpoints and checkpoints[-1].at_ns >= at_ns:
                oldest = checkpoints.pop()
                self.kept -= 1
                self.events += oldest.events
                for restore, arguments in reversed(oldest.undo):
                    restore(*arguments)
            if oldest is not None:
                self.rollbacks += 1
                self.facts += host.facts_done - oldest.facts
                oldest.restore(host, self._event_queue)
                self.restored.append(host)

    def end(self) -> None:
        """Nothing will be taken back any more."""
        self.on = False
        self.undo = None
        self.restored.clear()
