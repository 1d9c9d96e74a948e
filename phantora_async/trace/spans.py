"""The spans of which a trace consists, whatever its form. Instants are nanoseconds of virtual time."""

from __future__ import annotations

from typing import NamedTuple

from phantora_async.virtual_time import Collective


class Kernel(NamedTuple):
    """A kernel, copy or fill on a GPU."""

    device: int
    stream: int
    start_ns: int
    end_ns: int
    key: int
    """The key of its cost."""
    correlation: int
    external: int
    """The number of the op that launched it; 0: none."""


class Moved(NamedTuple):
    """A collective of an NCCL kernel."""

    collective: Collective
    begun_ns: int
    """The instant at which the last member's kernel had started: data moves from here on."""
    done_ns: int
    last_rank: int
    """The member that the others waited for."""


class Nccl(NamedTuple):
    """A kernel of NCCL: resident from its start, also while it waits for other members."""

    device: int
    stream: int
    start_ns: int
    end_ns: int
    moved: tuple[Moved, ...]
    correlation: int
    external: int


class Call(NamedTuple):
    """A call of the CUDA API."""

    thread: int
    start_ns: int
    end_ns: int
    name: str
    correlation: int
    external: int


class Sync(NamedTuple):
    """A wait of the host or of a stream for GPU work, which a call asked for."""

    kind: int
    """A ``TraceKind``: STREAM_WAIT, EVENT_SYNC, STREAM_SYNC or DEVICE_SYNC."""
    device: int
    stream: int
    """The stream that waits, or for which the host waits; -1: the host waits for a device or a recording of an
    event.
    """
    start_ns: int
    end_ns: int
    """The end of the call."""
    correlation: int
    recording: int
    """The number of the recording of an event; 0: none."""
    recorded_on: int
    """The stream of that recording; -1: none."""
    recorded_by: int
    """The correlation of the call that recorded it; -1: none that was traced."""


class Op(NamedTuple):
    """An op, an autograd node or a range of the program's."""

    thread: int
    start_ns: int
    end_ns: int
    name: str
    sizes: str
    """The sizes of its inputs, as PyTorch prints them; "" for a range of the program's."""
    external: int
    outermost: bool
    """True if no other op is around it."""


class Step(NamedTuple):
    number: int
    """The number of the step, from 1."""
    start_ns: int
    end_ns: int


class StreamWait(NamedTuple):
    """A wait of a stream for an event of another one."""

    device: int
    stream: int
    start_ns: int
    end_ns: int
    awaited: int


class MemoryUse(NamedTuple):
    """The memory of the caching allocator from this instant on, in bytes."""

    device: int
    at_ns: int
    allocated: int
    reserved: int


Span = Kernel | Nccl | Call | Sync | Op | Step | StreamWait | MemoryUse
