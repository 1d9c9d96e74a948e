"""Streams, and what they are given."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from emu.contract import records
from phantora_async.virtual_time.entities.collective import NcclKernel
from phantora_async.virtual_time.entities.device import Device
from phantora_async.virtual_time.entities.fields import constant, entity, logged, saved

if TYPE_CHECKING:
    from phantora_async.virtual_time.entities.host import Entry, Host


class StreamState(IntEnum):
    IDLE = 0
    """All that it was given is done."""
    RUNNING = 1
    """A segment is at its head."""
    BLOCKED = 2
    """Waits for an event recording."""
    COLLECTIVE = 3
    """An NCCL kernel is at its head: resident, waiting for peers or moving data."""


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


@entity
class Segment:
    """Consecutive kernels of one stream: its work is solo_ns x contended_ns x WORK_UNIT units.

    Alone it does contended_ns x WORK_UNIT of them per nanosecond, beside an NCCL kernel solo_ns x WORK_UNIT. So a
    change between these rates divides nothing, and only the completion is rounded: up, to the first nanosecond at which
    no unit is left. Beside segments of other streams the rate is lower (``profiles.gpu_sharing``), and rounded
    down.
    """

    launches: int = constant()
    """Places that it takes in the launch queue."""
    solo_ns: int = constant()
    contended_ns: int = constant()
    """At least solo_ns."""
    floor_ns: int = constant()
    """It is not complete before this instant: its last kernels are launched that late."""
    fill: int = constant()
    """How much of the GPU its kernels take, in parts of ``profiles.gpu_sharing.FULL``."""


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


Item = Segment | EventRecording | Wait | NcclKernel | StepEnd
"""What a stream is given."""
