"""The events that virtual time reports to listeners: one class for each kind. All instants are of virtual time.

An event belongs to one rank. Streams, devices and recordings have the numbers that the rank's records give them; a
process never gives two streams or recordings the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from emu.contract import records
from phantora_async.figures import Shares
from phantora_async.virtual_time.facts import Collective
from phantora_async.virtual_time.states import HostState, Totals


@dataclass(frozen=True, slots=True)
class TraceSaid:
    """A TRACE record arrived; ``at_ns`` is the instant of the record of the op stream before it."""

    at_ns: int
    record: records.Trace


# ---- the host ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HostBlocked:
    at_ns: int
    state: HostState
    on: int = -1
    """The stream, event recording or device that it waits for, if `state` says that it waits for one."""


@dataclass(frozen=True, slots=True)
class HostWoken:
    at_ns: int


@dataclass(frozen=True, slots=True)
class EventReached:
    """An event recording that the host waits for is complete."""

    at_ns: int
    recording: int


@dataclass(frozen=True, slots=True)
class CommAsked:
    """The host asks for a communicator. It waits if other members have not asked."""

    at_ns: int


@dataclass(frozen=True, slots=True)
class UnseenPassed:
    """An UnseenFact has been executed: ``for_ns`` have passed until now that no record shows."""

    at_ns: int
    for_ns: int


@dataclass(frozen=True, slots=True)
class StepMarked:
    """The host has ended its next step."""

    at_ns: int


@dataclass(frozen=True, slots=True)
class StepDone:
    """All work that was enqueued before the step's marker is done."""

    at_ns: int
    number: int
    """The step's number, counted from 0."""
    host_ns: int
    """The instant at which the host reached the marker."""
    counters: Totals
    shares: Shares
    """The shares of all the rank's devices, at ``at_ns``."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """Another process becomes the rank. The former one's streams, recordings and waits no longer exist."""

    at_ns: int


# ---- streams -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamCreated:
    at_ns: int
    device: int
    stream: int


@dataclass(frozen=True, slots=True)
class SegmentLaunched:
    at_ns: int
    device: int
    stream: int
    content: int
    """The number of what it consists of; 0: that is not told."""
    solo_ns: int
    """The time that its work takes alone on the GPU."""
    tail_work_ns: int
    """The part of that time that remains when its last kernels are launched too late for the GPU to be busy all the
    time."""


@dataclass(frozen=True, slots=True)
class SegmentBegan:
    at_ns: int
    stream: int
    work: int
    """The units of work that are to be done."""


@dataclass(frozen=True, slots=True)
class SegmentRate:
    """The stream's segment does ``rate`` units of work a nanosecond from now on."""

    at_ns: int
    stream: int
    rate: int


@dataclass(frozen=True, slots=True)
class SegmentEnded:
    at_ns: int
    stream: int


@dataclass(frozen=True, slots=True)
class StreamBlocked:
    """The stream waits for the work that another stream had been given when an event was recorded there."""

    at_ns: int
    stream: int
    awaited: int


@dataclass(frozen=True, slots=True)
class StreamUnblocked:
    at_ns: int
    stream: int


# ---- NCCL ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NcclLaunched:
    at_ns: int
    device: int
    stream: int


@dataclass(frozen=True, slots=True)
class NcclBegan:
    """The kernel is resident, and waits for the other members. If it was aborted before, it ends now, too."""

    at_ns: int
    stream: int


@dataclass(frozen=True, slots=True)
class CollectiveDone:
    """One of the collectives of the stream's kernel is complete. All members are told before any of their kernels
    ends.
    """

    at_ns: int
    stream: int
    collective: Collective
    begun_ns: int
    """The instant at which the last member had arrived and its data began to move."""
    last_rank: int
    last_stream: int
    """The stream of the last member's kernel."""


@dataclass(frozen=True, slots=True)
class NcclEnded:
    at_ns: int
    stream: int


Event = (
    TraceSaid
    | HostBlocked
    | HostWoken
    | EventReached
    | CommAsked
    | UnseenPassed
    | StepMarked
    | StepDone
    | Restarted
    | StreamCreated
    | SegmentLaunched
    | SegmentBegan
    | SegmentRate
    | SegmentEnded
    | StreamBlocked
    | StreamUnblocked
    | NcclLaunched
    | NcclBegan
    | CollectiveDone
    | NcclEnded
)
