"""Rows of a recording become facts of virtual time again, with what is each rank's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from emu.contract import records
from emu.contract.records import NcclKind, ScopeKind
from phantora_async.recording.recording import Recording, Stream
from phantora_async.recording.rows import MASK, NO_COMM, ROW, Call
from phantora_async.virtual_time import (
    OPENS,
    OUTSIDE,
    Collective,
    Comm,
    CommCreation,
    CommCreationFact,
    Gate,
    NcclKernelFact,
    OpensFact,
    OutsideFact,
)
from phantora_async.virtual_time.facts import SLEEP_NBYTES

Facts = list[Any]
_OTHER_NBYTES = SLEEP_NBYTES + 1
"""Of a HOST_ADVANCE that stands for another record."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """The facts of ranks that have the same rows."""

    facts: Facts
    begins: list[int]
    """Of each row: the place of its fact; behind the last one: the count of facts."""
    own: list[int]
    """Places of facts that differ from rank to rank: they hold the row."""


class FactMaker:
    """Makes the facts of all ranks. Those that belong together hold the same collective."""

    def __init__(self, recording: Recording, streams: Sequence[Stream]) -> None:
        """`streams`: of each rank that has a timeline of its own; those that do the same share one."""
        self._recording = recording
        self._streams = dict(zip(recording.own, streams, strict=True))
        self._shared: dict[int, _Shared] = {}
        self._collectives: dict[tuple[int, ...], Collective] = {}
        having = recording.timelines.having
        self._creations = [CommCreation(label, len(having(members))) for label, members in recording.creations]

    def _facts(self, rank: int) -> Facts:
        stream = self._streams[rank]
        shared = self._shared.get(id(stream))
        if shared is None:
            shared = self._shared[id(stream)] = self._translated(stream)
        facts = shared.facts.copy()
        own = _Own(self._recording, rank, self._collectives, self._creations)
        for place in shared.own:
            facts[place] = own.fact(facts[place])
        return facts

    def all_facts(self) -> dict[int, Facts]:
        """By rank that has a timeline of its own, with the sleeps where no record tells. Raises Damaged."""
        recording = self._recording
        facts = {rank: self._facts(rank) for rank in recording.own}
        inserted: dict[int, list[tuple[int, int, Any]]] = {}
        for number, sleep in enumerate(recording.sleeps):
            gate = Gate() if sleep.cause >= 0 else None
            waits = OutsideFact(OUTSIDE, 0, 0, 0, gate, sleep.for_ns)
            inserted.setdefault(sleep.rank, []).append((self._place(sleep.rank, sleep.row), number, waits))
            if gate is not None:
                place = self._place(sleep.cause, sleep.cause_rows)
                inserted.setdefault(sleep.cause, []).append((place, number, OpensFact(OPENS, 0, 0, 0, gate)))
        for rank, additions in inserted.items():
            for place, _, fact in sorted(additions, key=lambda one: one[:2], reverse=True):
                facts[rank].insert(place, fact)
        return facts

    def _place(self, rank: int, row: int) -> int:
        if rank not in self._streams:
            raise self._recording.damaged(f"it has no rank {rank}")
        begins = self._shared[id(self._streams[rank])].begins
        if not 0 <= row < len(begins):
            raise self._recording.damaged(f"rank {rank} has no row {row}")
        return begins[row]

    def _translated(self, stream: Stream) -> _Shared:
        try:
            return _translated(stream)
        except (KeyError, IndexError, ValueError, OverflowError) as error:
            raise self._recording.damaged(f"a row cannot be read: {error}") from None


class _Own:
    """What is one rank's own."""

    def __init__(
        self,
        recording: Recording,
        rank: int,
        collectives: dict[tuple[int, ...], Collective],
        creations: list[CommCreation],
    ) -> None:
        self._recording = recording
        self._rank = rank
        self._collectives = collectives
        self._all_creations = creations
        self._comms = recording.comms_of(rank)
        self._creations = iter(recording.creations_of(rank))
        self._called: Counter[tuple[int, ...]] = Counter()

    def fact(self, row: tuple[Any, ...]) -> Any:
        kind, site, stream, host_ns, values = row
        try:
            if kind == records.NCCL_LAUNCH:
                collectives = self._joined(self._recording.kernels[values[0]])
                return NcclKernelFact(kind, site, 0, host_ns, stream, collectives)
            if kind == records.COMM_DESTROY:
                return records.CommDestroy(kind, site, 0, host_ns, self._comms[values[0]].id, values[1], 0, b"")
            creation = self._all_creations[next(self._creations)]
        except (IndexError, StopIteration):
            raise self._recording.damaged(f"rank {self._rank} refers to what is not described") from None
        creation.joined.append(self._rank)
        creation.sites.append(site)
        return CommCreationFact(kind, site, 0, host_ns, creation)

    def _joined(self, kernel: tuple[Call, ...]) -> tuple[Collective, ...]:
        collectives = tuple(self._collective(call) for call in kernel)
        pairs = [one.ranks for one in collectives if one.op == NcclKind.SEND]
        if any(ranks[0] == self._rank for ranks in pairs) and any(ranks[1] == self._rank for ranks in pairs):
            for collective in collectives:
                collective.exchange = True
        return collectives

    def _collective(self, call: Call) -> Collective:
        comm: Comm = self._comms[call.comm]
        called: tuple[int, ...] = (comm.id,)
        ranks, each = comm.members, 1
        callers, offsets = comm.callers, comm.offsets
        if call.op == NcclKind.SEND:
            called = (comm.id, call.sender, call.receiver)
            ranks = comm.members[call.sender], comm.members[call.receiver]
            each += call.sender == call.receiver
            callers, offsets = None, self._recording.timelines.pair_offsets(comm, ranks)
        seq = self._called[called] // each
        self._called[called] += 1
        found = self._collectives.get((*called, seq))
        if found is None:
            found = Collective(
                comm, seq, call.op, call.dtype, call.redop, call.elements, call.root, ranks, callers, offsets
            )
            self._collectives[(*called, seq)] = found
        found.joined.append(self._rank)
        return found


def _translated(stream: Stream) -> _Shared:
    rows: list[Any] = list(zip(*(stream.rows[name].tolist() for name in ROW.fields or ()), strict=True))
    last_use = _last_uses(rows)
    dropped: dict[int, list[int]] = {}
    for recording, row in last_use.items():
        dropped.setdefault(row, []).append(recording)
    make = _Maker(iter(stream.counters))
    facts: Facts = []
    begins, own = [], []
    for number, row in enumerate(rows):
        begins.append(len(facts))
        if row[0] in _OWN and not (row[0] == records.COMM_DESTROY and row[4][0] == NO_COMM):
            own.append(len(facts))
            facts.append(row)
        else:
            facts.append(make.makers[row[0]](*row))
        for recording in dropped.get(number, ()):
            facts.append(records.RecordingDrop(records.RECORDING_DROP, 0, 0, 0, recording, b""))
    begins.append(len(facts))
    return _Shared(facts, begins, own)


_OWN = frozenset({records.NCCL_LAUNCH, records.COMM_INIT, records.COMM_SPLIT, records.COMM_DESTROY})


def _last_uses(rows: list[Any]) -> dict[int, int]:
    """By recording: the row that names it last."""
    found: dict[int, int] = {}
    last = 0
    for number, (kind, _, _, _, values) in enumerate(rows):
        if kind == records.EVENT_RECORD:
            last = (last + values[0]) & MASK
            found[last] = number
        elif kind == records.STREAM_WAIT:
            found[(last - values[0]) & MASK] = number
        elif kind in (records.HOST_WAIT, records.QUERY) and values[0] == ScopeKind.EVENT:
            found[(last - values[1]) & MASK] = number
        elif kind == records.ELAPSED:
            found[(last - values[0]) & MASK] = found[(last - values[1]) & MASK] = number
    return found


class _Maker:
    """A fact of each row that all ranks share, in order."""

    def __init__(self, counters: Any) -> None:
        self._counters = counters
        self._last = 0
        """The latest recording."""
        self.makers: dict[int, Callable[..., Any]] = {
            records.SEGMENT: self._segment,
            records.EVENT_RECORD: self._event_record,
            records.STREAM_WAIT: self._stream_wait,
            records.HOST_WAIT: self._host_wait,
            records.QUERY: self._query,
            records.ELAPSED: self._elapsed,
            records.CLOCK_READ: self._clock_read,
            records.STREAM_CREATE: self._stream_create,
            records.STREAM_DESTROY: self._stream_destroy,
            records.MEMORY: self._memory,
            records.MARKER: self._marker,
            records.COUNTERS: self._count,
            records.HOST_ADVANCE: self._host_advance,
            records.COMM_DESTROY: self._host_advance,
            records.BYE: self._bye,
            records.STEPS_DONE: self._steps_done,
        }

    def _segment(self, kind: int, site: int, stream: int, host_ns: int, values: list[int]) -> Any:
        launches, solo_ns, contended_ns, tail_ns, tail_work_ns, content = values
        durations = solo_ns, contended_ns, tail_ns, tail_work_ns
        return records.Segment(kind, site, 0, host_ns, stream, launches, *durations, content, b"")

    def _event_record(self, kind: int, site: int, stream: int, host_ns: int, values: list[int]) -> Any:
        self._last = (self._last + values[0]) & MASK
        return records.EventRecord(kind, site, 0, host_ns, stream, 0, self._last, 0, b"")

    def _named(self, ago: int) -> int:
        return (self._last - ago) & MASK

    def _stream_wait(self, kind: int, site: int, stream: int, host_ns: int, values: list[int]) -> Any:
        return records.StreamWait(kind, site, 0, host_ns, stream, 0, self._named(values[0]), b"")

    def _host_wait(self, kind: int, site: int, stream: int, host_ns: int, values: list[int]) -> Any:
        return records.HostWait(kind, site, 0, host_ns, values[0], stream, self._named(values[1]), b"")

    def _query(self, kind: int, site: int, stream: int, host_ns: int, values: list[int]) -> Any:
        return records.Query(
            kind, site, 0, host_ns, 0, self._named(values[1]), values[2], values[0], stream, values[3], 0, b""
        )

    def _elapsed(self, kind: int, site: int, stream: int, host_ns: int, values: list[int]) -> Any:
        return records.Elapsed(kind, site, 0, host_ns, 0, self._named(values[0]), self._named(values[1]), b"")

    def _clock_read(self, kind: int, site: int, stream: int, host_ns: int, values: list[int]) -> Any:
        return records.ClockRead(kind, site, 0, host_ns, 0, b"")

    def _stream_create(self, kind: int, site: int, stream: int, host_ns: int, values: list[int]) -> Any:
        return records.StreamCreate(kind, site, 0, host_ns, stream, values[0], 0, 0, b"")

    def _stream_destroy(self, kind: int, site: int, stream: int, host_ns: int, values: list[int]) -> Any:
        return records.StreamDestroy(kind, site, 0, host_ns, stream, 0, b"")

    def _memory(self, kind: int, site: int, stream: int, host_ns: int, values: list[int]) -> Any:
        allocated, reserved, device, *_ = values
        return records.Memory(kind, site, 0, host_ns, stream, 0, allocated, reserved, device, b"")

    def _marker(self, kind: int, site: int, stream: int, host_ns: int, values: list[int]) -> Any:
        return records.Marker(kind, site, 0, host_ns, values[0], 0, b"")

    def _count(self, kind: int, site: int, stream: int, host_ns: int, values: list[int]) -> Any:
        totals = next(self._counters)
        return records.Counters._make((kind, site, 0, host_ns, *totals, b""))

    def _host_advance(self, kind: int, site: int, stream: int, host_ns: int, values: list[int]) -> Any:
        slept = kind == records.HOST_ADVANCE and values[0]
        nbytes = SLEEP_NBYTES if slept else _OTHER_NBYTES
        return records.HostAdvance(records.HOST_ADVANCE, site, nbytes, host_ns, b"")

    def _bye(self, kind: int, site: int, stream: int, host_ns: int, values: list[int]) -> Any:
        return records.Bye(kind, site, 0, host_ns, 0, 0, b"")

    def _steps_done(self, kind: int, site: int, stream: int, host_ns: int, values: list[int]) -> Any:
        return records.StepsDone(kind, site, 0, host_ns, b"")
