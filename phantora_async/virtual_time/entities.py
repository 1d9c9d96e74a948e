"""Everything that the simulation changes: hosts, devices, streams and their items, collectives under way.

Here are fields; the rules are in ``streams``, ``collectives`` and ``hosts``. All state that depends on virtual time is
in these classes, in the event queue and in the network, so whoever saves and restores these saves and restores the
simulation.
"""

from __future__ import annotations

from copy import copy
from enum import IntEnum
from functools import reduce
from operator import add, attrgetter, sub
from typing import TYPE_CHECKING, Any, NamedTuple

from emu.contract import records
from emu.contract.records import DeviceKind
from phantora_async.over_time import MemoryChange, Samples
from phantora_async.over_time.samples import ACCOUNTS
from phantora_async.virtual_time.entity_fields import constant, entity, kept, logged, saved
from phantora_async.virtual_time.facts import Collective, CommCreation

if TYPE_CHECKING:
    from phantora_async.virtual_time.rollback_log import Checkpoint


NO_SAMPLES = 1 << 62
KEPT_FACTS = 1024
"""Facts that have been executed are forgotten when there are this many."""


class StreamState(IntEnum):
    IDLE = 0
    """All that it was given is done."""
    RUNNING = 1
    """A segment is at its head."""
    BLOCKED = 2
    """Waits for an event recording."""
    COLLECTIVE = 3
    """An NCCL kernel is at its head: resident, waiting for peers or moving data."""


class HostState(IntEnum):
    RUNNING = 0
    """It has an entry in the event queue: its next fact's instant, or its clock if that fact has not come."""
    WAITS_STREAM = 1
    WAITS_EVENT = 2
    WAITS_DEVICE = 3
    WAITS_QUEUE = 4
    """The launch queue is full; the fact that did not fit will be executed again."""
    WAITS_COMM_CREATION = 5
    PASSED_OVER = 6
    """Asleep where no record tells of it; holds no time back at present."""
    FINISHED = 7
    ENDED = 8
    """Its process has failed, and will be started again."""
    HELD = 9
    """It has done the steps of `--steps`."""


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
NO_COUNTERS = records.Counters(records.COUNTERS, 0, 0, 0, 0, 0.0, 0, 0, 0, 0, 0, b"")


@entity
class EventRecording:
    """A recorded event: pending until its stream reaches it."""

    stream: Stream = constant()
    number: int = constant()
    done_ns: int = logged(-1)
    waiters: list[Stream | Host] = logged(factory=list)


@entity
class StepEnd:
    """A step's end on one rank's host; complete when all work enqueued before it is."""

    host: Host = constant()
    number: int = constant()
    host_ns: int = constant()
    counters: records.Counters = constant()
    pending: int = logged(0)
    """Streams that have not reached it."""
    device_ns: int = logged(-1)
    shares: Shares = logged(NO_SHARES)
    """The devices' accounts at ``device_ns``, summed over the rank's devices."""


@entity
class Segment:
    """Consecutive kernels of one stream: its work is solo_ns x contended_ns x WORK_UNIT units.

    Alone it does contended_ns x WORK_UNIT of them per nanosecond, beside an NCCL kernel solo_ns x WORK_UNIT. So a
    change between these rates divides nothing, and only the completion is rounded: up, to the first nanosecond at which
    no unit is left. Beside segments of other streams the rate is lower (``streams``), and rounded down.
    """

    launches: int = constant()
    """Places that it takes in the launch queue."""
    solo_ns: int = constant()
    contended_ns: int = constant()
    """At least solo_ns."""
    floor_ns: int = constant()
    """It is not complete before this instant: its last kernels are launched that late."""
    fill: int = constant()
    """How much of the GPU its kernels take, in parts of ``streams.FULL``."""


@entity
class Wait:
    """A stream waits for an event recorded on another."""

    recording: EventRecording = constant()


@entity
class Stream:
    """A FIFO of items: each is taken up when those before it are done."""

    device: Device = constant()
    id: int = constant()
    order: int = constant()
    """Its place among simultaneous events."""
    state: StreamState = saved(StreamState.IDLE)
    items: list[Item] = saved(factory=list)
    """The list is replaced when items are removed; each append is logged."""
    head: int = saved(0)
    """Place of the first item that is not done."""
    launches: int = saved(0)
    """Given to it and not done."""
    queue_limit: int = saved(-1)
    """The host waits until ``launches`` is at most this; -1: it does not wait."""
    host_waits: bool = saved(False)
    """The host waits until the stream is idle."""
    work_left: int = saved(0)
    """Units of the running segment that are not done at ``updated_ns``."""
    rate: int = saved(0)
    """Units done per nanosecond since then."""
    updated_ns: int = saved(0)
    due: Entry | None = saved(None)
    """Its one event to come: the end of its segment."""


@entity
class Device:
    """One rank's GPU, and where its time went.

    At any instant it computes (a segment has work left), else moves data, else waits for peers, else waits for its
    host, else is idle (empty while the host waits for something that is not this device).
    """

    host: Host = constant()
    number: int = constant()
    resident: int = saved(0)
    """NCCL kernels that streams have reached and that are not complete."""
    transferring: int = saved(0)
    """Those of them that move data."""
    running: tuple[Stream, ...] = saved(())
    """Streams with a segment at their head."""
    busy_streams: int = saved(0)
    host_waits: bool = saved(False)
    """The host waits until no stream is busy."""
    busy_until_ns: int = saved(0)
    """When the work of the running segments ends, at the present rates."""
    since_ns: int = saved(-1)
    """Up to when time is booked; -1: the device has never been used, nothing is booked."""
    compute_ns: int = saved(0)
    transfer_ns: int = saved(0)
    peers_ns: int = saved(0)
    host_bound_ns: int = saved(0)
    idle_ns: int = saved(0)
    communication_ns: int = saved(0)
    sample_ns: int = saved(0)
    """When its accounts are noted next in ``samples``."""
    samples: Samples | None = kept()

    def account(self, now_ns: int) -> None:
        """Books the time since the last call; called before anything changes that decides where time goes."""
        if now_ns >= self.sample_ns:
            self._sample(now_ns)
        since = self.since_ns
        if now_ns <= since:
            return
        if self.resident:
            self.communication_ns += now_ns - since
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
                self.host_bound_ns += rest
        self.since_ns = now_ns

    def _sample(self, now_ns: int) -> None:
        """Notes the accounts at every instant for them that has been reached."""
        at_ns, self.sample_ns = self.sample_ns, NO_SAMPLES
        if self.samples is None:
            return
        width_ns = self.samples.make_room(now_ns)
        place = -(-at_ns // width_ns)
        while place * width_ns <= now_ns:
            self.account(place * width_ns)
            self.samples.put(place, _accounts(self))
            place += 1
        self.sample_ns = place * width_ns

    def shares_at(self, now_ns: int) -> Shares:
        """Where time went until this instant. Books nothing."""
        device = copy(self)
        device.sample_ns = NO_SAMPLES
        device.account(now_ns)
        return Shares._make(_shares(device))

    def samples_at(self, now_ns: int) -> Samples:
        """A copy that reaches to this instant. Books nothing."""
        assert self.samples is not None, "hosts give every device some"
        device = copy(self)
        device.samples = samples = self.samples.copy()
        device.account(now_ns)
        return samples


_shares = attrgetter(*Shares._fields)
"""A device's accounts have the names of the shares."""
_accounts = attrgetter(*ACCOUNTS)


@entity
class NcclKernel:
    """An NCCL kernel on a stream: done when all of its collectives are."""

    stream: Stream = constant()
    collectives: tuple[Collective, ...] = constant()
    """More than one for a group call."""
    remaining: int = logged(0)
    """Collectives that are not done, once its stream has reached it."""
    active: int = logged(0)
    """Collectives that move data now."""
    arrived_ns: int = logged(-1)
    """When its stream reached it."""
    beside_compute: bool = logged(False)
    """Its GPU was computing at that instant. A collective must not look at its members' GPUs when it begins: the order
    of events of several ranks at one instant means nothing."""

    @property
    def host(self) -> Host:
        return self.stream.device.host


@entity
class Transfer:
    """A collective under way: kernels that have arrived, and, when all have, since when it is in the network."""

    collective: Collective = constant()
    kernels: list[NcclKernel] = logged(factory=list)
    begun_ns: int = logged(-1)
    done_ns: int = logged(-1)
    """When the network completed it, as far as is known."""
    delivered: set[NcclKernel] = logged(factory=set)
    """Those of ``kernels`` that have been told so, as long as this may be taken back."""
    aborted: list[tuple[NcclKernel, int]] = logged(factory=list)
    """Kernels that had arrived and were aborted, and when."""


@entity
class Host:
    """A rank's program: executes the facts of its log in order."""

    rank: int = constant()
    order: int = constant()
    """Its place among simultaneous events."""
    log: list[Any] = kept(factory=list)
    """Facts that have arrived and are not forgotten."""
    forgotten: int = kept(0)
    """How many facts stood before those of ``log``."""
    cursor: int = logged(0)
    """Place of the next fact in ``log``. A checkpoint holds the count of facts instead: ``log`` gets shorter."""
    checkpoints: list[Checkpoint] = kept(factory=list)
    """Its history since global virtual time, while the simulation runs ahead of that."""
    answered: int = kept(0)
    """Facts, counted from the run's start, whose answers have left."""
    may_pass: bool = kept(False)
    """It sleeps where no record tells of it. Nothing is simulated ahead while this is set."""
    due: Entry | None = saved(None)
    """Its one event to come."""
    silent: bool = saved(False)
    """Its next fact has not come, and the simulation goes on as if it came later."""
    clock_ns: int = saved(0)
    """When it executed its last fact, or was woken."""
    state: HostState = saved(HostState.RUNNING)
    waits_for: Stream | EventRecording | Device | CommCreation | None = saved(None)
    retry: bool = saved(False)
    """The next fact has been reached already. It is executed once more, at ``clock_ns``."""
    polls: int = saved(0)
    """Questions in a row with next to no host time between; see ``output.is_delayed``."""
    polled_ns: int = saved(-1)
    """When it last asked."""
    poll_delayed: bool = saved(False)
    """The next fact is a question that has been delayed already."""
    streams: dict[int, Stream] = logged(factory=dict)
    """In any order, see ``ordered_streams``."""
    draining: tuple[Stream, ...] = saved(())
    """Streams that were destroyed with work left."""
    recordings: dict[int, EventRecording] = logged(factory=dict)
    devices: dict[int, Device] = saved(factory=dict)
    """Every GPU of the server that the rank sees."""
    used: tuple[Device, ...] = saved(())
    """Those of them that were ever given work."""
    counters: records.Counters = saved(NO_COUNTERS)
    """Totals since the run's start."""
    counted: records.Counters = kept(NO_COUNTERS)
    """By processes that the present one was started in place of."""
    memory: dict[int, MemoryPeaks] = saved(factory=dict)
    """By device."""
    memory_change: MemoryChange | None = saved(None)
    """The latest change of ``memory``."""
    steps: int = saved(0)

    @property
    def facts_done(self) -> int:
        """Counted from the run's start."""
        return self.forgotten + self.cursor

    def ordered_streams(self) -> list[Stream]:
        """As they were created."""
        return [stream for _, stream in sorted(self.streams.items())]

    def next_ns(self) -> int:
        """When its next fact is due. If that has not come: its clock, the fact can be no earlier."""
        if self.retry or self.cursor >= len(self.log):
            return self.clock_ns
        due_ns: int = self.clock_ns + self.log[self.cursor].host_ns
        return due_ns

    def forget(self, needed: int) -> None:
        """Facts before number `needed` will not be executed again; they are dropped when there are many. The last one
        stays: the host may wait in it."""
        count = needed - 1 - self.forgotten
        if count > KEPT_FACTS:
            del self.log[:count]
            self.cursor -= count
            self.forgotten += count

    def shares_at(self, now_ns: int) -> Shares:
        """Where the time of all its devices went until this instant."""
        return reduce(Shares.plus, (device.shares_at(now_ns) for device in self.gpus), NO_SHARES)

    @property
    def gpus(self) -> list[Device]:
        """Those of ``used`` whose time counts."""
        return [device for device in self.used if device.number < DeviceKind.APART]


Item = Segment | EventRecording | Wait | NcclKernel | StepEnd
"""What a stream is given."""
Entry = tuple[int, int, int, Stream | Host]
"""An event in the queue: (at_ns, order, sequence number, whose it is). A plain tuple: heaps compare many of them."""
