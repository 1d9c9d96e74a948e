"""Executes programs with the engine: the timeline is then as if it had executed their facts."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.faults.pace import NO_PACES, Paces
from phantora_async.over_time import MemoryChange, Samples, parts_for
from phantora_async.recording.given_answers import RecordedAnswers
from phantora_async.recording.recording import Recording, Stream
from phantora_async.replaying.native.binding import NEVER, Begun, Engine, Why, bytes_at, int64s
from phantora_async.replaying.programs import programs_of, table_of, tables_of
from phantora_async.virtual_time import Collective, HostState, MemoryPeaks, NetworkModel, Stop, Timeline, events
from phantora_async.virtual_time.entities import Device, Shares

COMMIT_EVERY = 256
"""Collectives between two looks at what the network may forget."""
_STOPS = {Why.DRAINED: Stop.DRAINED, Why.LIMIT: Stop.LIMIT, Why.STARVED: Stop.STARVED}


class _Network:
    """Collectives of the engine in the network."""

    def __init__(self, recording: Recording, network: NetworkModel, timeline: Timeline) -> None:
        self._comms = list(recording.comms.values())
        self._calls = [call for kernel in recording.kernels for call in kernel]
        self._network = network
        self._offsets = recording.timelines.pair_offsets
        self.begun = 0
        """Those that run at the same instants included."""
        self._results = timeline.output.results
        self._numbers: dict[Collective, int] = {}
        self._completed = 0

    def begin(self, begun: Begun) -> int:
        comm, call = self._comms[begun.comm], self._calls[begun.call]
        ranks, callers, offsets = comm.members, comm.callers, comm.offsets
        if call.op == NcclKind.SEND:
            ranks, callers = (comm.members[call.sender], comm.members[call.receiver]), None
            offsets = self._offsets(comm, ranks)
        made = Collective(
            comm, begun.seq, call.op, call.dtype, call.redop, call.elements, call.root, ranks, callers, offsets
        )
        made.exchange = begun.exchange
        made.joined = list(made.callers)
        self.begun += len(offsets)
        self._numbers[made] = begun.number
        self._network.begin(made, begun.at_ns, begun.beside_compute)
        return self._next_ns()

    def complete(self, at_ns: int) -> tuple[Sequence[int], int]:
        done = self._network.complete(at_ns)
        for collective in done:
            if 0 in collective.ranks:
                self._results.add_collective(collective, at_ns)
        self._completed += len(done)
        if self._completed > COMMIT_EVERY:
            self._completed = 0
            self._network.commit(at_ns)
        return [self._numbers.pop(collective) for collective in done], self._next_ns()

    def _next_ns(self) -> int:
        found = self._network.next_ns()
        return NEVER if found is None else found


def execute(
    recording: Recording,
    streams: Sequence[Stream],
    timeline: Timeline,
    network: NetworkModel,
    depth: int,
    paces: Paces = NO_PACES,
) -> tuple[Stop, list[RecordedAnswers]]:
    """`timeline`: has executed nothing. Returns why it stopped, and what each rank that has a timeline of its own was
    answered. Raises Damaged.
    """
    carrying = _Network(recording, network, timeline)
    programs = programs_of(recording, streams)
    parts = parts_for(recording.world_size)
    engine = Engine(
        programs,
        tables_of(recording),
        depth,
        timeline.limit_ns,
        parts,
        carrying.begin,
        carrying.complete,
        table_of(paces, recording.own),
        np.array([timeline.hosts[rank].gpu for rank in recording.own], np.int32),
    )
    why = engine.run()
    result = engine.result()
    if why not in _STOPS:
        what = (result.bad or b"a collective has too many members").decode()
        raise recording.damaged(f"rank {recording.own[result.bad_rank]}, row {result.bad_row}: {what}")
    _fill(timeline, engine, recording.own, streams, parts)
    timeline.collectives.begun = carrying.begun
    network.commit(result.now_ns)
    return _STOPS[why], [_answers(engine, place) for place in range(len(recording.own))]


def _answers(engine: Engine, place: int) -> RecordedAnswers:
    told = engine.rank(place)
    return RecordedAnswers(
        np.frombuffer(bytes_at(told.queries, told.nqueries), np.uint8),
        int64s(told.elapsed, 2 * told.nelapsed).reshape(-1, 2),
        int64s(told.clocks, told.nclocks),
    )


def _fill(timeline: Timeline, engine: Engine, own: Sequence[int], streams: Sequence[Stream], parts: int) -> None:
    """The engine numbers the ranks that have timelines of their own."""
    result = engine.result()
    timeline.event_queue.now_ns = result.now_ns
    timeline.event_queue.heap.clear()
    timeline.events = result.executed
    for place, (rank, stream) in enumerate(zip(own, streams, strict=True)):
        host, told = timeline.hosts[rank], engine.rank(place)
        host.due = None
        host.state, host.clock_ns, host.steps = HostState(told.state), told.clock_ns, told.steps
        if told.counters:
            host.counters = _counters(stream, told.counters)
        for change in int64s(told.memory, 5 * told.nmemory).reshape(-1, 5).tolist():
            at_ns, number, allocated, reserved, handed_out = change
            host.memory = host.memory | {number: MemoryPeaks(allocated, reserved, handed_out)}
            host.memory_change = MemoryChange(host.memory_change, at_ns, number, allocated, reserved)
        for one in engine.devices(place, told.ndevices):
            device = Device(host, one.number, None)
            device.since_ns = result.now_ns
            for name, value in zip(Shares._fields, one.shares, strict=True):
                setattr(device, name, value)
            device.samples = Samples(parts)
            device.samples.width_ns = one.width_ns
            device.samples.figures = array("q", int64s(one.samples, 5 * one.nsamples).tobytes())
            device.sample_ns = result.now_ns + 1
            host.used = (*host.used, device)
    for ended in engine.steps(result.nsteps):
        host = timeline.hosts[own[ended.rank]]
        counters = _counters(streams[ended.rank], ended.counters)
        done = events.StepDone(ended.device_ns, ended.number, ended.host_ns, counters, Shares(*ended.shares))
        timeline.announcer.tell(host, done)


def _counters(stream: Stream, number: int) -> records.Counters:
    """The rank's totals after so many COUNTERS."""
    if not number:
        return records.Counters(records.COUNTERS, 0, 0, 0, 0, 0.0, 0, 0, 0, 0, 0, b"")
    return records.Counters._make((records.COUNTERS, 0, 0, 0, *stream.counters[number - 1], b""))
