"""Everything that the simulation changes: hosts, devices, streams, marks, launches and transfers.

Plain attributes and no behaviour beyond keeping themselves consistent; ``streams``, ``collectives`` and ``hosts`` hold
the rules. All state that depends on virtual time is in these classes, in the agenda and in the network: what saves and
restores them saves and restores the simulation.
"""

from __future__ import annotations

from copy import copy
from enum import IntEnum
from functools import reduce
from operator import add, sub
from typing import TYPE_CHECKING, Any, NamedTuple

from emu.contract import records
from phantora_async.virtual_time.facts import Collective, CommCreation

if TYPE_CHECKING:
    from phantora_async.virtual_time.rollback_log import Checkpoint


class StreamState(IntEnum):
    IDLE = 0
    """All that it was given is done."""
    RUNNING = 1
    """A segment is at its head."""
    BLOCKED = 2
    """Waits for a mark."""
    COLLECTIVE = 3
    """An NCCL kernel is at its head: resident, waiting for peers or moving data."""


class HostState(IntEnum):
    RUNNING = 0
    """It has an entry in the agenda: its next record's instant, or its clock if that record has not come."""
    WAITS_STREAM = 1
    WAITS_EVENT = 2
    WAITS_DEVICE = 3
    WAITS_QUEUE = 4
    """The launch queue is full; the record that did not fit will be done again."""
    WAITS_COMM_CREATION = 5
    PASSED_OVER = 6
    """Asleep where no record tells of it; holds no time back at present."""
    FINISHED = 7


class Shares(NamedTuple):
    """Where a device's time went."""

    compute_ns: int
    transfer_ns: int
    """Communication that nothing hides, moving data."""
    peers_ns: int
    """The same, waiting for peers."""
    host_bound_ns: int
    """Empty while the host works."""
    idle_ns: int
    """Empty while the host waits for something that is not this device."""
    communication_ns: int
    """With an NCCL kernel on it, hidden or not."""

    def plus(self, other: Shares) -> Shares:
        return Shares(*map(add, self, other))

    def since(self, earlier: Shares) -> Shares:
        return Shares(*map(sub, self, earlier))


class MemoryPeaks(NamedTuple):
    """Bytes: what the caching allocator had given out and held, and what the driver had given out."""

    allocated: int
    reserved: int
    device: int

    def largest(self, other: MemoryPeaks) -> MemoryPeaks:
        """The larger of both, each for itself."""
        return MemoryPeaks(*map(max, self, other))


NO_SHARES = Shares(0, 0, 0, 0, 0, 0)
NO_MEMORY = MemoryPeaks(0, 0, 0)
NO_COUNTERS = records.Counters(records.COUNTERS, 0, 0, 0, 0, 0, 0, 0, 0.0, 0, 0, 0, 0, b"")


class EventRecording:
    """A recorded event: pending until its stream reaches it."""

    __slots__ = ("done_ns", "number", "stream", "waiters")

    def __init__(self, stream: Stream, number: int) -> None:
        self.stream = stream
        self.number = number
        self.done_ns = -1
        self.waiters: list[Stream | Host] = []


class StepEnd:
    """A step's end on one rank's host; complete when all work enqueued before it is."""

    __slots__ = ("counters", "device_ns", "host", "host_ns", "index", "pending", "shares")

    def __init__(self, host: Host, index: int, host_ns: int, counters: records.Counters) -> None:
        self.host = host
        self.index = index
        self.host_ns = host_ns
        self.counters = counters
        self.pending = 0
        self.device_ns = -1
        self.shares = NO_SHARES
        """The devices' accounts at ``device_ns``, summed over the rank's devices."""


SEGMENT_ITEM, RECORDING_ITEM, WAIT_ITEM, NCCL_ITEM, STEP_ITEM = range(5)
Item = tuple[Any, ...]
"""What a stream has been given: (SEGMENT_ITEM, launches, solo_ns, contended_ns, floor_ns), (MARK_ITEM, EventRecording),
(WAIT_ITEM, EventRecording), (LAUNCH_ITEM, NcclKernel), (STEP_ITEM, StepEnd)."""


class Stream:
    """A FIFO of items. ``order`` is its place among simultaneous events, ``due`` its turn in the agenda.

    A segment's work is solo_ns x contended_ns units; alone it does contended_ns of them per nanosecond, beside an NCCL
    kernel solo_ns. So a change of rate divides nothing, and only the completion is rounded: up, to the first nanosecond
    at which no unit is left.
    """

    __slots__ = (
        "device",
        "drain_waiter",
        "due",
        "floor_ns",
        "head",
        "id",
        "items",
        "left",
        "order",
        "pending",
        "queue_limit",
        "rate",
        "state",
        "updated_ns",
    )

    def __init__(self, device: Device, id: int, order: int) -> None:
        self.device = device
        self.id = id
        self.order = order
        self.state = StreamState.IDLE
        self.items: list[Item] = []
        self.head = 0
        self.pending = 0
        """Launches given and not done."""
        self.queue_limit = -1
        """The host waits until ``pending`` is at most this; -1: it does not wait."""
        self.drain_waiter = False
        self.left = 0
        self.rate = 0
        self.updated_ns = 0
        self.floor_ns = 0
        self.due: Entry | None = None


class Device:
    """One rank's GPU, and where its time went.

    At any instant it computes (a segment has work left), else moves data, else waits for peers, else waits for its
    host, else is idle (empty while the host waits for something that is not this device).
    """

    __slots__ = (
        "busy_streams",
        "busy_until_ns",
        "compute_ns",
        "drain_waiter",
        "host",
        "host_ns",
        "idle_ns",
        "number",
        "peers_ns",
        "resident",
        "resident_ns",
        "running",
        "since_ns",
        "transfer_ns",
        "transferring",
    )

    def __init__(self, host: Host, number: int) -> None:
        self.host = host
        self.number = number
        self.resident = 0
        """NCCL kernels that streams have reached and that are not complete."""
        self.transferring = 0
        """Those of them that move data."""
        self.running: list[Stream] = []
        self.busy_streams = 0
        self.drain_waiter = False
        self.busy_until_ns = 0
        """When the work of the running segments ends, at the present rates."""
        self.since_ns = -1
        """Up to when time is booked; -1: the device has never been used, nothing is booked."""
        self.compute_ns = self.transfer_ns = self.peers_ns = self.host_ns = self.idle_ns = 0
        self.resident_ns = 0

    def account(self, now_ns: int) -> None:
        """Books the time since the last call; called before anything changes that decides where time goes."""
        since = self.since_ns
        if now_ns <= since:
            return
        if self.resident:
            self.resident_ns += now_ns - since
        busy = self.busy_until_ns
        if busy > since:
            until = busy if busy < now_ns else now_ns
            self.compute_ns += until - since
            since = until
        rest = now_ns - since
        if rest:
            if self.transferring:
                self.transfer_ns += rest
            elif self.resident:
                self.peers_ns += rest
            elif self.host.state:
                self.idle_ns += rest
            else:
                self.host_ns += rest
        self.since_ns = now_ns

    def shares_at(self, now_ns: int) -> Shares:
        """Where time went until this instant. Books nothing."""
        device = copy(self)
        device.account(now_ns)
        return Shares(
            device.compute_ns, device.transfer_ns, device.peers_ns, device.host_ns, device.idle_ns, device.resident_ns
        )


class NcclKernel:
    """An NCCL kernel on a stream: done when all of its meetings are."""

    __slots__ = ("active", "arrived_ns", "collectives", "remaining", "stream")

    def __init__(self, stream: Stream, collectives: tuple[Collective, ...]) -> None:
        self.stream = stream
        self.collectives = collectives
        self.remaining = len(collectives)
        self.active = 0
        """Meetings that move data now."""
        self.arrived_ns = -1
        """When its stream reached it."""


class Transfer:
    """A meeting under way: launches that have arrived, and, when all have, since when it is in the network."""

    __slots__ = ("begun_ns", "collective", "delivered", "done_ns", "gone", "launches")

    def __init__(self, collective: Collective) -> None:
        self.collective = collective
        self.launches: list[NcclKernel] = []
        self.begun_ns = -1
        self.done_ns = -1
        """When the network completed it, as far as is known."""
        self.delivered: set[NcclKernel] = set()
        """Those of ``launches`` that have been told so, while it may be taken back."""
        self.gone: list[tuple[NcclKernel, int]] = []
        """Launches that were here and gave up, and when."""


class Host:
    """A rank's program: consumes its log in order. ``cursor`` is the next fact, ``clock_ns`` the last one's instant."""

    __slots__ = (
        "again",
        "answered",
        "checkpoints",
        "clock_ns",
        "counters",
        "cursor",
        "devices",
        "draining",
        "due",
        "forgotten",
        "log",
        "may_pass",
        "memory",
        "order",
        "polled_again",
        "polled_ns",
        "polls",
        "rank",
        "recordings",
        "silent",
        "state",
        "steps",
        "streams",
        "used",
        "waits_for",
    )

    def __init__(self, rank: int, order: int) -> None:
        self.rank = rank
        self.order = order
        self.log: list[Any] = []
        self.forgotten = 0
        """Facts that stood before those of ``log``."""
        self.cursor = 0
        self.due: Entry | None = None
        self.silent = False
        """Its next fact has not come, and the simulation goes on as if it came later."""
        self.checkpoints: list[Checkpoint] = []
        """Its history since global virtual time, while the simulation runs ahead of that; see ``journal``."""
        self.answered = 0
        """Facts, counted from the run's start, whose answers have left."""
        self.clock_ns = 0
        self.state = HostState.RUNNING
        self.waits_for: Stream | EventRecording | Device | CommCreation | None = None
        self.again = False
        """The next record has been reached already and only did not fit."""
        self.may_pass = False
        self.polls = 0
        """Questions in a row with next to no host time between; see ``polling``."""
        self.polled_ns = -1
        self.polled_again = False
        self.streams: dict[int, Stream] = {}
        self.draining: tuple[Stream, ...] = ()
        """Streams that were destroyed with work left."""
        self.recordings: dict[int, EventRecording] = {}
        self.devices: dict[int, Device] = {}
        """Every GPU of the server that the rank sees."""
        self.used: list[Device] = []
        """Those of them that were ever given work."""
        self.counters: records.Counters = NO_COUNTERS
        self.memory: dict[int, MemoryPeaks] = {}
        self.steps = 0

    def shares_at(self, now_ns: int) -> Shares:
        """Where the time of all its devices went until this instant."""
        return reduce(Shares.plus, (device.shares_at(now_ns) for device in self.used), NO_SHARES)


Entry = tuple[int, int, int, "Stream | Host"]
"""A turn in the agenda: (at_ns, order, seq, whose it is)."""
