"""What happens next: the events of virtual time in their one total order.

Order: instant, then completions before hosts, then rank, then the order in which events came to be, which is the same
in every run because it depends on nothing but earlier events. Cancelled events are not removed: whoever owns them knows
which entry is valid and the others are dropped when their turn comes.
"""

from __future__ import annotations

from heapq import heappush

from phantora_async.virtual_time.entities import Host, Stream

NEVER = 1 << 62
HOSTS = 1 << 40
"""Orders from here on are hosts'; below are streams'."""
Entry = tuple[int, int, int, Stream | Host]
"""(at_ns, order, seq, whose turn it is)"""


class Agenda:
    __slots__ = ("heap", "now_ns", "seq", "woken")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self.now_ns = 0
        self.seq = 0
        self.woken: list[Host] = []
        """Hosts that go on now; the timeline gives them their turn."""

    def push(self, at_ns: int, target: Stream | Host) -> int:
        """Returns the entry's seq. An instant that has gone by is a bug of ours, never a fault of a rank."""
        assert at_ns >= self.now_ns, f"an event at {at_ns} ns, when it is {self.now_ns} ns"
        self.seq = seq = self.seq + 1
        heappush(self.heap, (at_ns, target.order, seq, target))
        return seq
