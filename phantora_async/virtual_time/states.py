"""The states of hosts and streams, as reports and messages see them."""

from __future__ import annotations

import operator
from enum import IntEnum
from typing import NamedTuple

from emu.contract import records


class HostState(IntEnum):
    """The states of a host, with the numbers of ``native/engine.h``."""

    RUNNING = 0
    """It has an entry in the event queue: at its next fact's instant, or at its clock if that fact has not come."""
    WAITS_STREAM = 1
    WAITS_EVENT = 2
    WAITS_DEVICE = 3
    WAITS_QUEUE = 4
    """The launch queue is full; the fact that did not fit will be executed again."""
    WAITS_COMM_CREATION = 5
    PASSED_OVER = 6
    """It is asleep where no record says so, and holds no time back at present."""
    FINISHED = 7
    ENDED = 8
    """Its process has failed, and will be started again."""
    HELD = 9
    """It has done the steps of `--steps`."""


class StreamState(IntEnum):
    """The states of a stream, with the numbers of ``native/engine.h``."""

    IDLE = 0
    """All its work is done."""
    RUNNING = 1
    """A segment is at its head."""
    BLOCKED = 2
    """It waits for an event recording."""
    COLLECTIVE = 3
    """An NCCL kernel is at its head: resident, waiting for peers or moving data."""


class MemoryPeaks(NamedTuple):
    """Peaks in bytes: what the caching allocator had given out and held, and what the driver had given out."""

    allocated: int
    reserved: int
    device: int

    def largest(self, other: MemoryPeaks) -> MemoryPeaks:
        """The larger value of both, for each peak."""
        return MemoryPeaks(*map(max, self, other))

    def exceed(self, most: MemoryPeaks) -> bool:
        """Returns true if any peak is more than its limit."""
        return any(own > limit for own, limit in zip(self, most, strict=True))


NO_MEMORY = MemoryPeaks(0, 0, 0)


class GpuMemory(NamedTuple):
    """The memory that a process has of a GPU from an instant on."""

    at_ns: int
    gpu: int
    """The GPU's number on its server."""
    nbytes: int
    """The bytes that CUDA has given out to the process."""
    child: int
    """0: the rank's own process; else the number of a process besides it that uses the rank's GPU."""
    parent: int
    """The rank that has started this process, counted from 1; 0 for the rank's own process."""
    ended: int
    """1: the process has ended, and its context with it."""


class GenerationNote(NamedTuple):
    """One event of the responses that a rank's program generates, as the rank told it."""

    at_ns: int
    kind: int
    """The record's: BATCH, RESPONSE, KV_BLOCKS, TRAINING; MARKER: a step ends."""
    first: int
    second: int
    third: int
    """The values of the record's row."""


class Totals(NamedTuple):
    """The totals that a rank has counted since the run's start: the fields of COUNTERS."""

    launches: int
    flops: float
    host_work_ns: int
    api_calls: int
    ops: int
    unmodelled_reads: int
    refused_calls: int

    @classmethod
    def of(cls, record: records.Counters) -> Totals:
        return cls._make(getattr(record, name) for name in cls._fields)

    def plus(self, other: Totals) -> Totals:
        """The sum of what two processes of one rank have counted, one after the other."""
        return Totals(*map(operator.add, self, other))


NO_TOTALS = Totals(0, 0.0, 0, 0, 0, 0, 0)
