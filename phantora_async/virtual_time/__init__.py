"""Virtual time: one discrete-event simulation of hosts, streams, collectives and flows. See docs/virtual-time.md.

Comes in: facts, rank by rank (``Timeline.feed``); a ``NetworkModel``, which says how long collectives take.
Goes out: answers to ranks (``Timeline.take_answers``), a ``Snapshot`` for reports and messages, events for whoever
listens (``Timeline.listen``), ``ProtocolError`` for a fact that no working hook library sends.
May import: emu.contract, errors, over_time.
"""

from phantora_async.virtual_time import events
from phantora_async.virtual_time.events import Event
from phantora_async.virtual_time.facts import (
    UNSEEN,
    Collective,
    Comm,
    CommCreation,
    CommCreationFact,
    NcclKernelFact,
    UnseenFact,
)
from phantora_async.virtual_time.network import NetworkModel, Revised
from phantora_async.virtual_time.policy import EAGER, NEVER, ON_DEMAND, POLICIES, SpeculationPolicy
from phantora_async.virtual_time.results import StepFigures
from phantora_async.virtual_time.snapshot import (
    CollectiveSnapshot,
    RankSnapshot,
    Snapshot,
    StreamSnapshot,
    WaitSnapshot,
)
from phantora_async.virtual_time.states import NO_MEMORY, GenerationNote, GpuMemory, HostState, MemoryPeaks, StreamState
from phantora_async.virtual_time.timeline import Host, Listener, OutsideWait, Recorded, Stop, Timeline
from phantora_async.virtual_time.timelines import Timelines

__all__ = [
    "EAGER",
    "NEVER",
    "NO_MEMORY",
    "ON_DEMAND",
    "POLICIES",
    "UNSEEN",
    "Collective",
    "CollectiveSnapshot",
    "Comm",
    "CommCreation",
    "CommCreationFact",
    "Event",
    "GenerationNote",
    "GpuMemory",
    "Host",
    "HostState",
    "Listener",
    "MemoryPeaks",
    "NcclKernelFact",
    "NetworkModel",
    "OutsideWait",
    "RankSnapshot",
    "Recorded",
    "Revised",
    "Snapshot",
    "SpeculationPolicy",
    "StepFigures",
    "Stop",
    "StreamSnapshot",
    "StreamState",
    "Timeline",
    "Timelines",
    "UnseenFact",
    "WaitSnapshot",
    "events",
]
