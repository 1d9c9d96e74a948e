"""How simulated time is taken back: what each rank was like before each instant that may still be invalidated.

While the simulation runs ahead of global virtual time, every rank keeps *checkpoints*: one for each instant at which
something happened to it, with the saved fields of its host, streams and devices as they were before (see
``entity_fields``). Going back to an instant restores the oldest checkpoint from there on. What several ranks share, or
is too much to copy, is undone through the checkpoint's *undo entries*, the latest first; where an entry concerns other
ranks (a collective that has begun had them all), those go back as well. No time is ever subtracted, and ranks that had
nothing to do with the one that goes back keep their history.

Without speculation nothing is written: ``on`` is False.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phantora_async.virtual_time.entities import Device, Host, StepEnd, Stream, Transfer
from phantora_async.virtual_time.entity_fields import Saver
from phantora_async.virtual_time.event_queue import EventQueue

Undo = list[tuple[Callable[..., Any], tuple[Any, ...]]]
"""Calls that undo changes, in the order in which these were made."""
_HOST, _STREAM, _DEVICE = Saver(Host), Saver(Stream), Saver(Device)


class Checkpoint:
    """A rank's part of one instant: how it was before, and what it told the outside, which is held back until then."""

    __slots__ = ("answers", "at_ns", "completed", "devices", "facts", "host", "step_ends", "streams", "turns", "undo")

    def __init__(self, host: Host, at_ns: int) -> None:
        self.at_ns = at_ns
        self.turns = 0
        """Events of the simulation at this instant."""
        self.undo: Undo = []
        self.answers: list[tuple[int, bytes]] = []
        """(number among the host's facts, encoded record)"""
        self.step_ends: list[StepEnd] = []
        self.completed: list[Transfer] = []
        """Collectives of the rank."""
        self.facts = host.facts_done
        self.host = _HOST.save(host)
        self.streams = [(stream, _STREAM.save(stream)) for stream in (*host.streams.values(), *host.draining)]
        self.devices = [(device, _DEVICE.save(device)) for device in host.used]

    def restore(self, host: Host, event_queue: EventQueue) -> None:
        """The saved fields of the host and of all that is its own."""
        for stream in (*host.streams.values(), *host.draining):
            stream.due = None
        for device in host.used:
            _DEVICE.reset(device)  # those that had not been used before stay so
        _HOST.restore(host, self.host)
        host.cursor = self.facts - host.forgotten
        for stream, values in self.streams:
            _STREAM.restore(stream, values)
            event_queue.put_back(stream)
        for device, values in self.devices:
            _DEVICE.restore(device, values)
        event_queue.put_back(host)


class RollbackLog:
    __slots__ = ("_demands", "_event_queue", "facts", "kept", "on", "restored", "rollbacks", "turns", "undo")

    def __init__(self, event_queue: EventQueue) -> None:
        self._event_queue = event_queue
        self._demands: list[tuple[Host, int]] = []
        self.on = False
        self.undo: Undo | None = None
        """Of the checkpoint of whose host's event is executed; None while nothing is written."""
        self.restored: list[Host] = []
        """Hosts that have gone back; whoever drives the simulation looks whether their facts have come since."""
        self.rollbacks = 0
        """How often a rank went back."""
        self.turns = 0
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
        """The same, for an event of the host's own: undo entries go there from now on."""
        checkpoint = self.checkpoint(host)
        checkpoint.turns += 1
        self.undo = checkpoint.undo
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
                self.facts += host.facts_done - oldest.facts
                oldest.restore(host, self._event_queue)
                self.restored.append(host)
