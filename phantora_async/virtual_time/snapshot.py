"""Snapshots of the timeline: immutable values.

Reports, the status line and failure messages read these and nothing else of the timeline. Taking a snapshot changes
nothing. What is simulated ahead of global virtual time is shown as it is now; it may still be taken back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.contract.records import DeviceKind
from phantora_async.figures import Shares
from phantora_async.over_time import (
    Activity,
    accounts_at,
    memory_at,
    parts_for,
    width_for,
)
from phantora_async.over_time.samples import ACCOUNTS
from phantora_async.virtual_time.facts import Collective
from phantora_async.virtual_time.native.binding import int64s
from phantora_async.virtual_time.results import CompletedCollective, StepInstants, StepWindow
from phantora_async.virtual_time.states import (
    NO_MEMORY,
    GenerationNote,
    GpuMemory,
    HostState,
    MemoryPeaks,
    StreamState,
    Totals,
)

if TYPE_CHECKING:
    from phantora_async.virtual_time.timeline import Timeline

APART = DeviceKind.APART
"""The number from which on devices do not count in a rank's time."""


class CollectiveSnapshot(NamedTuple):
    description: str
    joined: tuple[int, ...]
    """The members that have called it, in the order in which their calls arrived."""
    sites: tuple[int, ...]
    """The call site of each of them, as a number of its own sites."""
    missing: tuple[int, ...]
    """The members whose streams have not reached it; empty once its data moves."""


class StreamSnapshot(NamedTuple):
    id: int
    cause_id: int
    """The stream behind which it is blocked in the end, or itself."""
    cause_state: StreamState
    collectives: tuple[CollectiveSnapshot, ...]
    """The collectives of the NCCL kernel at the cause's head: the first that waits for members, or the first two if
    none does.
    """


class CommCreationSnapshot(NamedTuple):
    label: str
    arrived: tuple[int, ...]
    """The ranks whose hosts wait in it."""
    missing: tuple[int, ...] = ()
    """The members that have not asked; () if it is not known who the members are."""


class WaitSnapshot(NamedTuple):
    """A wait of a host: for one stream, for all causes of its GPU's work, or for a communicator's creation."""

    site: int
    """The rank's call site, as a number of its own sites; 0: unknown."""
    streams: tuple[StreamSnapshot, ...]
    creation: CommCreationSnapshot | None


class RankSnapshot(NamedTuple):
    rank: int
    state: HostState
    clock_ns: int
    wait: WaitSnapshot | None
    last_site: int
    """The site of the last received call that has one, executed or not; 0: unknown."""
    steps: int
    counters: Totals
    memory: MemoryPeaks
    """The largest peaks of its devices."""
    gpu_memory: tuple[GpuMemory, ...]
    """The bytes that its processes had of GPUs, in the order of the instants."""
    shares: Shares
    """The shares of all its devices until now."""
    generating_ns: int
    """The time in which its program generated responses, as BATCH records tell."""
    partial_ns: int
    """The part of that in which it generated fewer at once than before, because others were complete."""
    window: StepWindow | None
    """Its steps that count; None if it has no whole one."""


class SimulatorFigures(NamedTuple):
    facts: int
    """The facts that were executed and not taken back."""
    events: int
    """The events that were executed, including those that were taken back."""
    events_taken_back: int
    rollbacks: int
    """The number of times that a rank went back."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    now_ns: int
    """Global virtual time: everything before it is decided."""
    ahead_ns: int
    """The instant up to which any rank has been simulated."""
    steps: int
    """The steps that every rank's host has done."""
    collectives: int
    """The number of collectives that have begun."""
    ranks: tuple[RankSnapshot, ...]
    step_instants: tuple[StepInstants, ...]
    """The instants of each step's end on rank 0."""
    completed_collectives: tuple[CompletedCollective, ...]
    """The completed collectives of rank 0, in order."""
    simulator: SimulatorFigures


def take(timeline: Timeline, ranks: Iterable[int]) -> Snapshot:
    """See ``Timeline.snapshot``."""
    view = timeline.engine.view()
    rank_snapshots = _Ranks(timeline, view.now_ns)
    return Snapshot(
        view.now_ns,
        view.ahead_ns,
        min(host.steps for host in timeline.own_hosts),
        view.begun,
        tuple(rank_snapshots.rank(rank) for rank in ranks),
        tuple(timeline.results.step_instants),
        tuple(timeline.results.completed_collectives),
        SimulatorFigures(view.facts_done, view.events, view.events_back, view.rollbacks),
    )


def take_activity(timeline: Timeline) -> Activity:
    """See ``Timeline.activity``."""
    now_ns, hosts = timeline.now_ns, timeline.hosts
    places = range(len(timeline.own_hosts))
    used = [_gpus(timeline, place, now_ns) for place in places]
    least_ns = max((device.width_ns for devices in used for device in devices), default=0)
    width_ns = max(width_for(now_ns, parts_for(len(hosts))), least_ns)
    accounts = []
    for devices in used:
        together = np.zeros((ACCOUNTS, -(-now_ns // width_ns) + 1), np.int64)
        for device in devices:
            samples = int64s(device.samples, ACCOUNTS * device.nsamples).reshape(-1, ACCOUNTS)
            every = width_ns // device.width_ns
            together += accounts_at(samples[::every], now_ns, width_ns, list(device.shares)[:ACCOUNTS])
        accounts.append(together)
    memory = [memory_at(_memory_changes(timeline, place), width_ns, now_ns) for place in places]
    shown = [timeline.place(rank) for rank in range(len(hosts))]
    return Activity(
        width_ns,
        now_ns,
        [accounts[at] for at in shown],
        [memory[at] for at in shown],
        [len(used[at]) for at in shown],
    )


def take_generation(timeline: Timeline) -> dict[int, tuple[GenerationNote, ...]]:
    """See ``Timeline.generation``."""
    found = {}
    for place, host in enumerate(timeline.own_hosts):
        view = timeline.engine.host(place)
        if view.nnotes:
            rows = int64s(view.notes, 5 * view.nnotes).reshape(-1, 5).tolist()
            found[host.rank] = tuple(map(GenerationNote._make, rows))
    return found


def _gpus(timeline: Timeline, place: int, now_ns: int) -> list[Any]:
    """The host's devices whose time counts: its own GPU, or all that it has used if it has not used its own."""
    counted = [device for device in timeline.engine.devices(place, now_ns) if device.number < APART]
    return [device for device in counted if device.number == timeline.own_hosts[place].gpu] or counted


def _memory_changes(timeline: Timeline, place: int) -> NDArray[np.int64]:
    view = timeline.engine.host(place)
    return int64s(view.memory, 5 * view.nmemory).reshape(-1, 5)


class _Ranks:
    """Builds the ranks' parts of one snapshot. A collective is described once, however many of its members are
    shown.
    """

    def __init__(self, timeline: Timeline, now_ns: int) -> None:
        self._timeline = timeline
        self._engine = timeline.engine
        self._now_ns = now_ns
        self._described: dict[int, CollectiveSnapshot] = {}
        self._known: dict[int, RankSnapshot] = {}
        """The snapshots of ranks with timelines of their own, by rank."""

    def rank(self, rank: int) -> RankSnapshot:
        own = self._timeline.hosts[rank].rank
        known = self._known.get(own)
        if known is None:
            known = self._known[own] = self._shown(own)
        return known if rank == own else known._replace(rank=rank)

    def _shown(self, rank: int) -> RankSnapshot:
        timeline, place = self._timeline, self._timeline.place(rank)
        view = self._engine.host(place)
        return RankSnapshot(
            rank,
            HostState(view.state),
            view.clock_ns,
            self._wait(place, view),
            view.last_site,
            view.steps,
            timeline.counters(place, view.counters),
            reduce(MemoryPeaks.largest, timeline.own_hosts[place].memory.values(), NO_MEMORY),
            tuple(map(GpuMemory._make, int64s(view.taken, 6 * view.ntaken).reshape(-1, 6).tolist())),
            Shares(*self._engine.shares(place, self._now_ns)),
            view.generating_ns,
            view.partial_ns,
            timeline.results.window(rank),
        )

    def _wait(self, place: int, view: Any) -> WaitSnapshot | None:
        if not view.wait:
            return None
        if view.wait_creation >= 0:
            creation = self._timeline.creations[view.wait_creation]
            arrived = tuple(self._engine.asking(view.wait_creation, creation.size))
            missing = tuple(rank for rank in creation.members if rank not in arrived)
            return WaitSnapshot(view.wait_site, (), CommCreationSnapshot(creation.label, arrived, missing))
        return WaitSnapshot(view.wait_site, tuple(map(self._stream, self._engine.awaited(place))), None)

    def _stream(self, view: Any) -> StreamSnapshot:
        numbers = view.collectives[: view.ncollectives]
        return StreamSnapshot(
            view.id, view.cause_id, StreamState(view.cause_state), tuple(map(self._collective, numbers))
        )

    def _collective(self, number: int) -> CollectiveSnapshot:
        known = self._described.get(number)
        if known is None:
            collective: Collective = self._timeline.network.collective(number)
            missing: tuple[int, ...] = ()
            arrived = self._engine.arrived(number, len(collective.callers))
            if arrived is not None:
                missing = tuple(rank for rank in collective.callers if rank not in arrived) or collective.ranks
            known = self._described[number] = CollectiveSnapshot(
                collective.describe(), tuple(collective.joined), tuple(collective.sites), missing
            )
        return known
