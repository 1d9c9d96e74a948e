"""When collectives start and complete: all members' streams must have come, then the network says how long it takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from phantora_async.virtual_time.agenda import NEVER, Agenda
from phantora_async.virtual_time.entities import LAUNCH_ITEM, SEGMENT_ITEM, Launch, Stream, StreamState, Transfer
from phantora_async.virtual_time.facts import Meeting
from phantora_async.virtual_time.streams import Streams


class Fabric(Protocol):
    """The network as virtual time uses it; ``phantora_async.fabric`` makes one of netsim."""

    def begin(self, key: int, meeting: Meeting, at_ns: int) -> None:
        """All members of the meeting have come at this instant, which is never earlier than one named before."""

    def next_ns(self) -> int | None:
        """When the next begun meeting completes if none begins before; never earlier than the last instant named."""

    def complete(self, at_ns: int) -> list[int]:
        """Goes on to this instant, ``next_ns``'s answer. Keys of the meetings that complete then, ascending."""

    def commit(self, at_ns: int) -> None:
        """Nothing will begin or be taken back before this instant: history before it may be dropped."""


class Collectives:
    __slots__ = ("_agenda", "_fabric", "_keys", "_stale", "_streams", "begun", "next_ns", "under_way")

    def __init__(self, agenda: Agenda, streams: Streams, fabric: Fabric) -> None:
        self._agenda = agenda
        self._streams = streams
        self._fabric = fabric
        self._keys: dict[int, Transfer] = {}
        self._stale = False
        self.under_way: dict[Meeting, Transfer] = {}
        """Meetings that some member's stream has reached and that are not complete."""
        self.next_ns = NEVER
        self.begun = 0

    def refresh(self) -> int:
        """Instant of the network's next completion, NEVER if nothing is under way."""
        if self._stale:
            self._stale = False
            found = self._fabric.next_ns()
            self.next_ns = NEVER if found is None else found
        return self.next_ns

    def arrive(self, launch: Launch) -> None:
        """The launch's kernel is resident: it takes part in each of its meetings, which begin when complete."""
        for meeting in launch.meetings:
            transfer = self.under_way.get(meeting)
            if transfer is None:
                transfer = self.under_way[meeting] = Transfer(meeting)
            transfer.launches.append(launch)
            if len(transfer.launches) == len(meeting.ranks):
                self._begin(transfer)

    def _begin(self, transfer: Transfer) -> None:
        now_ns = self._agenda.now_ns
        self.begun = transfer.key = self.begun + 1
        transfer.begun_ns = now_ns
        self._keys[transfer.key] = transfer
        for launch in transfer.launches:
            if not launch.active:
                device = launch.stream.device
                device.account(now_ns)
                device.transferring += 1
            launch.active += 1
        self._fabric.begin(transfer.key, transfer.meeting, now_ns)
        self._stale = True

    def complete(self) -> list[Transfer]:
        """It is the instant that ``refresh`` named: meetings that are done release their kernels."""
        now_ns = self._agenda.now_ns
        self._stale = True
        done = [self._keys.pop(key) for key in self._fabric.complete(now_ns)]
        for transfer in done:
            del self.under_way[transfer.meeting]
            for launch in transfer.launches:
                launch.active -= 1
                launch.remaining -= 1
                if not launch.active:
                    device = launch.stream.device
                    device.account(now_ns)
                    device.transferring -= 1
                if not launch.remaining:
                    self._streams.finish_launch(launch)
        return done

    def abandon(self, streams: Iterable[Stream], comm: int) -> None:
        """ncclCommAbort: the communicator's kernels on these streams that wait for peers end now, later ones at once.

        Their peers' kernels go on waiting, as on real GPUs.
        """

        def concerns(launch: Launch) -> bool:
            return any(meeting.comm.id == comm for meeting in launch.meetings)

        for stream in streams:
            for place in range(stream.head + 1, len(stream.items)):
                item = stream.items[place]
                if item[0] == LAUNCH_ITEM and concerns(item[1]):
                    stream.items[place] = (SEGMENT_ITEM, 1, 0, 0, 0)
            if stream.state == StreamState.COLLECTIVE:
                launch = stream.items[stream.head][1]
                if concerns(launch) and not launch.active:
                    for meeting in launch.meetings:
                        transfer = self.under_way.get(meeting)
                        if transfer is not None and transfer.key < 0:
                            transfer.launches.remove(launch)
                    self._streams.finish_launch(launch)

    def commit(self, at_ns: int) -> None:
        self._fabric.commit(at_ns)
