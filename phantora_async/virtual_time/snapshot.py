"""What the timeline shows of itself: immutable values.

Reports, the status line and failure messages read these and nothing else of the timeline. Taking a snapshot changes
nothing. What is simulated ahead of global virtual time is shown as it is now; it may still be taken back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.contract import records
from phantora_async.over_time import Activity, accounts_at, memory_at, parts_for, width_for
from phantora_async.over_time.samples import ACCOUNTS
from phantora_async.virtual_time.entities import (
    NO_MEMORY,
    Device,
    EventRecording,
    Host,
    HostState,
    MemoryPeaks,
    NcclKernel,
    Shares,
    Stream,
    StreamState,
    Transfer,
    Wait,
)
from phantora_async.virtual_time.facts import Collective, CommCreation
from phantora_async.virtual_time.output import CompletedCollective, Revisions, StepInstants, StepWindow

if TYPE_CHECKING:
    from phantora_async.virtual_time.timeline import Timeline

SHOWN_COLLECTIVES = 2
"""Of an NCCL kernel whose data moves: a group call may take part in thousands."""
DEPTH = 8
"""Streams that wait for streams are followed no further."""


class CollectiveSnapshot(NamedTuple):
    description: str
    joined: tuple[int, ...]
    """Members that have called it, in the order in which their calls arrived."""
    sites: tuple[int, ...]
    """Where each of them called, as a number of its own places."""
    missing: tuple[int, ...]
    """Members whose streams have not reached it; empty once its data moves."""


class StreamSnapshot(NamedTuple):
    id: int
    cause_id: int
    """The stream behind which it is blocked in the end, or itself."""
    cause_state: StreamState
    collectives: tuple[CollectiveSnapshot, ...]
    """Of the NCCL kernel at the cause's head: the first that waits for members, or the first two if none does."""


class CommCreationSnapshot(NamedTuple):
    label: str
    arrived: tuple[int, ...]
    """Ranks whose hosts wait in it."""


class WaitSnapshot(NamedTuple):
    """What a host waits for: one stream, all causes of its GPU's work, or a communicator's creation."""

    site: int
    """Where the rank called, as a number of its own places; 0: unknown."""
    streams: tuple[StreamSnapshot, ...]
    creation: CommCreationSnapshot | None


class RankSnapshot(NamedTuple):
    rank: int
    state: HostState
    clock_ns: int
    wait: WaitSnapshot | None
    last_site: int
    """Of the last call received that told its place, reached or not; 0: unknown."""
    steps: int
    counters: records.Counters
    memory: MemoryPeaks
    """The largest of its devices."""
    shares: Shares
    """Until now, of all its devices."""
    window: StepWindow | None
    """Its steps that count; None if it has no whole one."""


class SimulatorFigures(NamedTuple):
    facts: int
    """Executed, and not taken back."""
    events: int
    """Events executed, with those that were taken back."""
    events_taken_back: int
    rollbacks: int
    """How often a rank went back."""
    revisions: Revisions


@dataclass(frozen=True, slots=True)
class Snapshot:
    now_ns: int
    """Global virtual time: everything before it is decided."""
    ahead_ns: int
    """How far any rank has been simulated."""
    steps: int
    """Done by every rank's host."""
    collectives: int
    """That have begun."""
    ranks: tuple[RankSnapshot, ...]
    step_instants: tuple[StepInstants, ...]
    """Of each step's end on rank 0."""
    completed_collectives: tuple[CompletedCollective, ...]
    """Of rank 0, in order."""
    simulator: SimulatorFigures


def take(timeline: Timeline, ranks: Iterable[int]) -> Snapshot:
    """See ``Timeline.snapshot``."""
    now_ns, rollback_log = timeline.now_ns, timeline.rollback_log
    rank_snapshots = _Ranks(timeline, now_ns)
    return Snapshot(
        now_ns,
        timeline.ahead_ns,
        min(host.steps for host in timeline.own_hosts),
        timeline.collectives.begun,
        tuple(rank_snapshots.rank(rank) for rank in ranks),
        tuple(timeline.output.results.step_instants),
        tuple(timeline.output.results.completed_collectives),
        SimulatorFigures(
            timeline.facts_done,
            timeline.events,
            rollback_log.events,
            rollback_log.rollbacks,
            timeline.output.revisions,
        ),
    )


def take_activity(timeline: Timeline) -> Activity:
    """See ``Timeline.activity``."""
    now_ns, hosts = timeline.now_ns, timeline.hosts
    own = {host.rank: host for host in hosts}.values()
    sampled = [[(device, device.samples_at(now_ns)) for device in host.gpus] for host in own]
    least_ns = max((samples.width_ns for devices in sampled for _, samples in devices), default=0)
    width_ns = max(width_for(now_ns, parts_for(len(hosts))), least_ns)
    accounts = []
    for devices in sampled:
        together = np.zeros((len(ACCOUNTS), -(-now_ns // width_ns) + 1), np.int64)
        for device, samples in devices:
            together += accounts_at(samples, width_ns, now_ns, device.shares_at(now_ns)[: len(ACCOUNTS)])
        accounts.append(together)
    memory = [memory_at(host.memory_change, width_ns, now_ns) for host in own]
    place = {host.rank: at for at, host in enumerate(own)}
    shown = [place[host.rank] for host in hosts]
    return Activity(
        width_ns,
        now_ns,
        [accounts[at] for at in shown],
        [memory[at] for at in shown],
        [len(sampled[at]) for at in shown],
    )


class _Ranks:
    """Ranks' parts of one snapshot. A collective is described once, however many of its members are shown."""

    def __init__(self, timeline: Timeline, now_ns: int) -> None:
        self._timeline = timeline
        self._now_ns = now_ns
        self._described: dict[Collective, CollectiveSnapshot] = {}
        self._known: dict[int, RankSnapshot] = {}
        """By rank with a timeline of its own."""

    def rank(self, rank: int) -> RankSnapshot:
        host = self._timeline.hosts[rank]
        known = self._known.get(host.rank)
        if known is None:
            known = self._known[host.rank] = self._shown(host)
        return known if rank == host.rank else known._replace(rank=rank)

    def _shown(self, host: Host) -> RankSnapshot:
        return RankSnapshot(
            host.rank,
            host.state,
            host.clock_ns,
            self._wait(host),
            next((fact.site for fact in reversed(host.log) if fact.site), 0),
            host.steps,
            host.counters,
            reduce(MemoryPeaks.largest, host.memory.values(), NO_MEMORY),
            host.shares_at(self._now_ns),
            self._timeline.output.results.window(host.rank),
        )

    def _wait(self, host: Host) -> WaitSnapshot | None:
        target = host.waits_for
        if target is None:
            return None
        # A launch that found its queue full is still to be done; every other wait is behind the cursor.
        place = host.cursor if host.state == HostState.WAITS_QUEUE else host.cursor - 1
        site = host.log[place].site if 0 <= place < len(host.log) else 0
        if isinstance(target, CommCreation):
            arrived = self._timeline.comm_creations.waiting(target)
            return WaitSnapshot(site, (), CommCreationSnapshot(target.label, arrived))
        if isinstance(target, Device):
            busy = (stream for stream in host.ordered_streams() if stream.device is target and stream.state)
            streams = tuple(dict.fromkeys(_cause(stream) for stream in busy))
        else:
            streams = (target.stream if isinstance(target, EventRecording) else target,)
        return WaitSnapshot(site, tuple(self._stream(stream) for stream in streams), None)

    def _stream(self, stream: Stream) -> StreamSnapshot:
        cause = _cause(stream)
        collectives: tuple[CollectiveSnapshot, ...] = ()
        if cause.state == StreamState.COLLECTIVE:
            kernel = cause.items[cause.head]
            assert isinstance(kernel, NcclKernel)
            taking_part = kernel.collectives
            awaited = next((collective for collective in taking_part if self._awaited(collective)), None)
            shown = taking_part[:SHOWN_COLLECTIVES] if awaited is None else (awaited,)
            collectives = tuple(self._collective(collective) for collective in shown)
        return StreamSnapshot(stream.id, cause.id, cause.state, collectives)

    def _awaited(self, collective: Collective) -> Transfer | None:
        """It, if members' streams have reached it and its data does not move."""
        transfer = self._timeline.collectives.under_way.get(collective)
        return transfer if transfer is not None and transfer.begun_ns < 0 else None

    def _collective(self, collective: Collective) -> CollectiveSnapshot:
        known = self._described.get(collective)
        if known is None:
            missing: tuple[int, ...] = ()
            transfer = self._awaited(collective)
            if transfer is not None:
                arrived = {kernel.host.rank for kernel in transfer.kernels}
                missing = tuple(rank for rank in collective.callers if rank not in arrived) or collective.ranks
            known = self._described[collective] = CollectiveSnapshot(
                collective.describe(), tuple(collective.joined), tuple(collective.sites), missing
            )
        return known


def _cause(stream: Stream) -> Stream:
    """The stream that a blocked one waits for in the end, or itself."""
    for _ in range(DEPTH):
        if stream.state != StreamState.BLOCKED:
            break
        wait = stream.items[stream.head]
        assert isinstance(wait, Wait)
        stream = wait.recording.stream
    return stream
