"""Everything that the simulation changes: hosts, devices, streams and their items, collectives under way.

Here are fields; the rules are in ``streams``, ``collectives`` and ``hosts``. All state that depends on virtual time is
in these classes, in the event queue and in the network, so whoever saves and restores these saves and restores the
simulation.

Lives here: a module for each kind of entity (`host`, `device`, `stream`, `collective`, `repetition`), and what a
rollback does to their fields (`fields`).
Comes in: facts, as `phantora_async.virtual_time.facts` defines them.
Goes out: state; whoever changes it does so by the rules.
May import: emu.contract, over_time, virtual_time.facts; types of virtual_time.rollback_log.
"""

from phantora_async.virtual_time.entities.collective import NcclKernel, Transfer
from phantora_async.virtual_time.entities.device import NO_SHARES, Device, Shares
from phantora_async.virtual_time.entities.host import (
    KEPT_FACTS,
    NO_COUNTERS,
    NO_MEMORY,
    Entry,
    Host,
    HostState,
    MemoryLimit,
    MemoryPeaks,
    Turns,
)
from phantora_async.virtual_time.entities.stream import (
    EventRecording,
    Item,
    Segment,
    StepEnd,
    Stream,
    StreamState,
    Wait,
)

__all__ = [
    "KEPT_FACTS",
    "NO_COUNTERS",
    "NO_MEMORY",
    "NO_SHARES",
    "Device",
    "Entry",
    "EventRecording",
    "Host",
    "HostState",
    "Item",
    "MemoryLimit",
    "MemoryPeaks",
    "NcclKernel",
    "Segment",
    "Shares",
    "StepEnd",
    "Stream",
    "StreamState",
    "Transfer",
    "Turns",
    "Wait",
]
