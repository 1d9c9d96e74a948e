"""What happens next: the events of virtual time in their one total order.

Order: instant, then completions before hosts, then rank, then the order in which events came to be, which is the same
in every run because it depends on nothing but earlier events. Cancelled events are not removed: ``due`` of whose event
it is names the entry that is valid, and the others are dropped when they come up.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from phantora_async.virtual_time.entities import Device, Entry, Host, NcclKernel, Stream

NEVER = 1 << 62
NETWORK = -1
"""The order of what the network completes: before everything else of its instant."""
HOSTS = 1 << 40
"""Orders from here on are hosts'; below are streams'."""
STALE_ENTRIES = 4096
"""The queue is cleared of entries that are no longer valid when it has grown by so many."""


class Timestamp(NamedTuple):
    """Of an event: its place in the total order."""

    at_ns: int
    order: int


AFTER_ALL = Timestamp(NEVER, 0)


class EventQueue:
    __slots__ = ("_tidy_at", "arrived", "heap", "now_ns", "seq", "woken")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self.now_ns = 0
        self.seq = 0
        self.arrived: list[NcclKernel] = []
        """Kernels that have reached the head of their stream now: their collectives may begin."""
        self.woken: list[Host] = []
        """Hosts that go on now."""
        self._tidy_at = STALE_ENTRIES

    def push(self, at_ns: int, target: Stream | Host) -> None:
        """The target's one event to come. An instant that has gone by is a bug of ours, never a fault of a rank."""
        assert at_ns >= self.now_ns, f"an event at {at_ns} ns, when it is {self.now_ns} ns"
        self.seq = seq = self.seq + 1
        target.due = entry = (at_ns, target.order, seq, target)
        heappush(self.heap, entry)

    def push_at_death(self, host: Host, device: Device) -> bool:
        """If the GPU dies one day, that is the host's event to come. Returns whether it does."""
        pace = device.pace
        if pace is None or not self.now_ns <= pace.dies_ns < NEVER:
            return False
        self.push(pace.dies_ns, host)
        return True

    def drop(self, target: Stream | Host) -> None:
        """The target's event does not come."""
        target.due = None

    def first_timestamp(self) -> Timestamp:
        """Of the first event; its instant is NEVER if there is none."""
        heap = self.heap
        while heap:
            at_ns, order, _, target = entry = heap[0]
            if target.due is entry:
                return Timestamp(at_ns, order)
            heappop(heap)
        return AFTER_ALL

    def put_back(self, target: Stream | Host) -> None:
        """The event that it had before is to come again; it may be in the queue still, and is taken only once."""
        if target.due is not None:
            heappush(self.heap, target.due)

    def tidy(self) -> None:
        """Drops entries that are not valid, when there may be many."""
        if len(self.heap) > self._tidy_at:
            self.heap[:] = {entry for *_, target in self.heap if (entry := target.due) is not None}
            heapify(self.heap)
            self._tidy_at = len(self.heap) + STALE_ENTRIES
