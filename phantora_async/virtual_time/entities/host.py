"""A rank's program."""

from __future__ import annotations

from enum import IntEnum
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from emu.contract import records
from emu.contract.records import DeviceKind
from phantora_async.errors import ProtocolError
from phantora_async.faults.pace import NEVER, Pace
from phantora_async.over_time import MemoryChange
from phantora_async.virtual_time.entities.device import NEVER_BOOKED, NO_SHARES, Device, Shares
from phantora_async.virtual_time.entities.fields import constant, entity, kept, logged, saved
from phantora_async.virtual_time.entities.stream import EventRecording, Stream
from phantora_async.virtual_time.facts import CommCreation, sleeps

if TYPE_CHECKING:
    from phantora_async.virtual_time.rollback_log import Checkpoint

KEPT_FACTS = 1024
"""Facts that have been executed are forgotten when there are this many."""


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


class MemoryPeaks(NamedTuple):
    """Bytes: what the caching allocator had given out and held, and what the driver had given out."""

    allocated: int
    reserved: int
    device: int

    def largest(self, other: MemoryPeaks) -> MemoryPeaks:
        """The larger of both, each for itself."""
        return MemoryPeaks(*map(max, self, other))

    def exceed(self, most: MemoryPeaks) -> bool:
        """Is any of them more than may be?"""
        return any(own > limit for own, limit in zip(self, most, strict=True))


class Turns(NamedTuple):
    """The turns of a loop that asks nothing but whether one work is complete."""

    first_ns: int
    """When the first question is asked."""
    each_ns: int
    most: int
    """How many questions there are, if the work is not complete before."""

    def asked_by(self, at_ns: int) -> int:
        """The number, from 1, of the first question that is asked at this instant or later."""
        return 1 + max(0, -((self.first_ns - at_ns) // self.each_ns))

    def at_ns(self, number: int) -> int:
        """When question `number` is asked."""
        return self.first_ns + (number - 1) * self.each_ns


NO_MEMORY = MemoryPeaks(0, 0, 0)
NO_COUNTERS = records.Counters(records.COUNTERS, 0, 0, 0, 0, 0.0, 0, 0, 0, 0, 0, b"")


@entity
class Host:
    """A rank's program: executes the facts of its log in order."""

    rank: int = constant()
    order: int = constant()
    """Its place among simultaneous events."""
    pace: Pace | None = constant()
    """None: it always works at full speed."""
    gpu: int = constant()
    """The number of its own GPU on its server; -1: not known."""
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
    """Questions in a row with next to no host time between; see ``polls.delay_poll``."""
    polled_ns: int = saved(-1)
    """When it last asked."""
    poll_delayed: bool = saved(False)
    """The next fact is a question that has been delayed already."""
    turns: Turns | None = saved(None)
    """Of the next fact, a loop's questions that the host has begun to ask."""
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

    def stream(self, number: int) -> Stream:
        """Raises ProtocolError."""
        stream = self.streams.get(number)
        if stream is None:
            raise ProtocolError(self.rank, f"stream {number} was never created, or is destroyed")
        return stream

    def recording(self, number: int) -> EventRecording:
        """Raises ProtocolError."""
        recording = self.recordings.get(number)
        if recording is None:
            raise ProtocolError(self.rank, f"recording {number} was never made, or is dropped")
        return recording

    def ordered_streams(self) -> list[Stream]:
        """As they were created."""
        return [stream for _, stream in sorted(self.streams.items())]

    def next_ns(self) -> int:
        """When its next fact is due. If that has not come: its clock, the fact can be no earlier."""
        if self.retry or self.cursor >= len(self.log):
            return self.clock_ns
        fact = self.log[self.cursor]
        due_ns: int = self.clock_ns + fact.host_ns
        if self.pace is None:
            return due_ns
        if not sleeps(fact):
            due_ns = self.pace.lasts(self.clock_ns, fact.host_ns)
        return NEVER if self.pace.is_dead(due_ns) else due_ns

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
        own = (device for device in self.used if device.number < DeviceKind.APART)
        return reduce(Shares.plus, (device.shares_at(now_ns) for device in own), NO_SHARES)

    @property
    def gpus(self) -> list[Device]:
        """Those of ``used`` whose time counts: its own one, or all if it has never used that one."""
        counted = [device for device in self.used if device.number < DeviceKind.APART]
        return [device for device in counted if device.number == self.gpu] or counted

    def begin_use(self, device: Device, now_ns: int) -> None:
        """The device is given its first work. Time on GPUs of other ranks' numbers is booked until the rank uses its
        own one: most of what happens there is another rank's, and here they would be idle.
        """
        device.since_ns = now_ns
        self.used = (*self.used, device)
        if any(one.number == self.gpu for one in self.used):
            for one in self.used:
                if one.number not in (self.gpu, self.gpu + DeviceKind.APART):
                    one.account(now_ns)
                    one.since_ns = NEVER_BOOKED


Entry = tuple[int, int, int, Stream | Host]
"""An event in the queue: (at_ns, order, sequence number, whose it is). A plain tuple: heaps compare many of them."""


class MemoryLimit(NamedTuple):
    """A host whose peaks exceed one of `most` is held when its step ends, except after `last_step`, after which the run
    ends anyhow; 0: there is no such step.
    """

    most: MemoryPeaks
    last_step: int

    def ends(self, host: Host) -> bool:
        return host.steps != self.last_step and any(peaks.exceed(self.most) for peaks in host.memory.values())
