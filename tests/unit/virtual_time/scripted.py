"""Ranks that follow a script instead of a program: records written down, answers looked at afterwards."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emu.contract import records
from emu.contract.records import MarkerKind, NcclKind, ScopeKind
from phantora_async.faults.pace import NO_PACES, Paces
from phantora_async.ingest.costs import Costs, CostTable
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.ingest.messages import kind_of
from phantora_async.virtual_time import Collective, Revised, Stop, Timeline, Timelines


class FixedNetwork:
    """Every collective takes the time that a function of it says, whatever else moves."""

    def __init__(self, duration_ns: Callable[[Collective], int] = lambda collective: collective.nbytes) -> None:
        self._duration_ns = duration_ns
        self._due: dict[Collective, int] = {}
        self._begun: dict[Collective, int] = {}

    @property
    def begun(self) -> list[tuple[int, str]]:
        return sorted((at_ns, collective.describe()) for collective, at_ns in self._begun.items())

    def begin(self, collective: Collective, at_ns: int, beside_compute: bool) -> Sequence[Revised]:
        assert collective not in self._due
        self._begun[collective] = at_ns
        self._due[collective] = at_ns + max(self._duration_ns(collective), 1)
        return ()

    def retract(self, collective: Collective) -> Sequence[Revised]:
        self._due.pop(collective, None)
        del self._begun[collective]
        return ()

    def next_ns(self) -> int | None:
        return min(self._due.values(), default=None)

    def complete(self, at_ns: int) -> list[Collective]:
        done = sorted(key for key, due_ns in self._due.items() if due_ns == at_ns)
        for key in done:
            del self._due[key]
        return done

    def commit(self, at_ns: int) -> None:
        assert all(due_ns >= at_ns for due_ns in self._due.values())

    def shortest_ns(self, collective: Collective) -> int:
        return max(self._duration_ns(collective), 1)


class NoCosts:
    """Scripts hold segments, whose durations are known."""

    def cost(self, signature: str) -> Any:
        raise AssertionError(signature)


class Script:
    """Writes one rank's records. Methods take the host time that passed before, `after`, and return the script."""

    def __init__(self, rank: int, world_size: int, comm: int = 0) -> None:
        self.rank = rank
        self.world_size = world_size
        self.comm = comm
        self.records: list[bytes] = []
        self._recordings = 0
        self._questions = 0
        self._calls: dict[object, int] = {}
        self.add(records.Hello.encode(0, records.VERSION, rank, world_size, 0, rank, 1, 0, 0))
        self._streams = 0
        for _ in range(3):
            self.new_stream()

    def add(self, record: bytes) -> Script:
        self.records.append(record)
        return self

    def new_stream(self) -> int:
        """Numbers are never used again."""
        self._streams += 1
        self.add(records.StreamCreate.encode(0, self._streams, 0, 0, 0))
        return self._streams

    def advance(self, for_ns: int) -> Script:
        return self.add(records.HostAdvance.encode(for_ns))

    def segment(
        self,
        solo_ns: int,
        *,
        stream: int = 1,
        contended_ns: int = 0,
        after: int = 0,
        launches: int = 1,
        tail_ns: int = 0,
        tail_work_ns: int = 0,
        content: int = 0,
        copies: bool = False,
    ) -> Script:
        beside_ns = 0 if copies else contended_ns or solo_ns
        durations = solo_ns, beside_ns, tail_ns or solo_ns, tail_work_ns
        return self.add(records.Segment.encode(after, stream, launches, *durations, content))

    def record(self, *, stream: int = 1, after: int = 0, drop: int = 0) -> int:
        self._recordings += 1
        self.add(records.EventRecord.encode(after, stream, 0, self._recordings, drop))
        return self._recordings

    def wait(self, recording: int, *, stream: int, after: int = 0) -> Script:
        return self.add(records.StreamWait.encode(after, stream, 0, recording))

    def sync(self, *, stream: int = 0, recording: int = 0, after: int = 0) -> Script:
        scope = ScopeKind.STREAM if stream else ScopeKind.EVENT if recording else ScopeKind.DEVICE
        return self.add(records.HostWait.encode(after, scope, stream, recording))

    def op(self, op: int, count: int, *, peer: int = 0, dtype: int = 0, token: int = 0, data: bytes = b"") -> bytes:
        key = (kind_of(op), peer) if kind_of(op) in (NcclKind.SEND, NcclKind.RECV) else None
        seq = self._calls.get((self.comm, key), 0)
        self._calls[self.comm, key] = seq + 1
        return records.NcclOp.encode(self.comm, seq, op, dtype, 0, peer, count, token, len(data), 1.0)

    def launch(self, *ops: bytes, stream: int = 2, after: int = 0, data: bytes = b"") -> Script:
        return self.add(records.NcclLaunch.encode(after, stream, len(ops), payload=b"".join(ops) + data))

    def all_reduce(self, count: int, *, stream: int = 2, after: int = 0) -> Script:
        return self.launch(self.op(NcclKind.ALL_REDUCE, count), stream=stream, after=after)

    def send(self, peer: int, count: int, *, stream: int = 2, after: int = 0) -> Script:
        return self.launch(self.op(NcclKind.SEND, count, peer=peer), stream=stream, after=after)

    def receive(self, peer: int, count: int, *, stream: int = 2, after: int = 0) -> Script:
        return self.launch(self.op(NcclKind.RECV, count, peer=peer), stream=stream, after=after)

    def join_world(self, *, unique: bytes = b"world", after: int = 0) -> Script:
        """Members of the first communicator; its id is known before: see ``world_comm``."""
        self._questions += 1
        payload = unique.ljust(128, b"\0")
        return self.add(
            records.CommInit.encode(after, self._questions, self.world_size, self.rank, 0, 0, payload=payload)
        )

    def clock(self, *, after: int = 0) -> Script:
        self._questions += 1
        return self.add(records.ClockRead.encode(after, self._questions))

    def elapsed(self, start: int, end: int, *, after: int = 0) -> Script:
        self._questions += 1
        return self.add(records.Elapsed.encode(after, self._questions, start, end))

    def query(
        self, recording: int = 0, *, after: int = 0, since_ns: int = 0, turns: int = 0, stream: int = 0
    ) -> Script:
        """Without recording and stream: about all of the device."""
        self._questions += 1
        scope = ScopeKind.EVENT if recording else ScopeKind.STREAM if stream else ScopeKind.DEVICE
        return self.add(records.Query.encode(after, self._questions, recording, since_ns, scope, stream, turns, 0))

    def step(self, *, after: int = 0) -> Script:
        return self.add(records.Marker.encode(after, MarkerKind.STEP, 0))

    def batch(self, responses: int, *, after: int = 0) -> Script:
        return self.add(records.Batch.encode(after, responses, 0))

    def bye(self, *, after: int = 0) -> Script:
        return self.add(records.Bye.encode(after, 0, 0))


@dataclass(frozen=True, slots=True)
class Result:
    answers: dict[int, list[int]]
    """By rank: what its questions were answered with, one number each (clock, elapsed or done)."""
    end_ns: int
    stop: Stop
    timeline: Timeline
    begun: list[tuple[int, str]]
    rooms: dict[int, list[int]]
    """By rank: the room in its launch queues that answers to reads of the clock say."""

    def clocks(self, rank: int) -> list[int]:
        return self.answers.get(rank, [])


def world_comm(world_size: int, unique: bytes = b"world") -> int:
    """Returns the id that ``join_world`` of all ranks will get."""
    fact_builder = new_fact_builder(world_size)
    for rank in range(world_size):
        script = Script(rank, world_size).join_world(unique=unique)
        fact_builder.take(rank, records.decode_up(b"".join(script.records))[0])
    return next(iter(fact_builder.communicators.by_id))


def scripts(world_size: int) -> list[Script]:
    """Returns one script a rank, in a communicator of all."""
    comm = world_comm(world_size)
    return [Script(rank, world_size, comm).join_world() for rank in range(world_size)]


def new_fact_builder(world_size: int, timelines: Timelines | None = None) -> FactBuilder:
    with tempfile.TemporaryDirectory() as folder:
        costs = Costs(NoCosts(), CostTable(Path(folder) / "costs", 64))
        return FactBuilder(world_size, costs, timelines=timelines)


def number(answer: bytes) -> int:
    (record,), _ = records.decode_down(answer)
    return int(record[4])


class Arrivals:
    """The records of all ranks, which arrive in portions. A rank that waits for a communicator sends nothing."""

    def __init__(self, scripts: Sequence[Script], timeline: Timeline, fact_builder: FactBuilder) -> None:
        self._timeline = timeline
        self._fact_builder = fact_builder
        self._left = [records.decode_up(b"".join(script.records))[0] for script in scripts]
        self._joining: set[int] = set()

    def __bool__(self) -> bool:
        return any(self._left)

    def left(self, rank: int) -> int:
        """Returns how many records the rank has still to send."""
        return len(self._left[rank])

    def waits(self, rank: int) -> bool:
        return rank in self._joining

    def feed(self, rank: int, most: int) -> None:
        """Lets the next records of the rank arrive: so many, or up to the first one that waits for a communicator."""
        left = self._left[rank]
        asks = [place for place, record in enumerate(left) if record.kind == records.COMM_INIT]
        portion = min(most, asks[0] + 1 if asks else most)
        arrived = left[:portion]
        del left[:portion]
        if arrived and arrived[-1].kind == records.COMM_INIT:
            self._joining.add(rank)
        self._timeline.feed(rank, self._fact_builder.take(rank, arrived))
        self._joining.difference_update(answered for answered, _ in self._fact_builder.take_answers())


def play(
    scripts: Sequence[Script],
    *,
    duration_ns: Callable[[Collective], int] = lambda collective: collective.nbytes,
    queue_depth: int = 1024,
    shuffle: random.Random | None = None,
    paces: Paces = NO_PACES,
    most: int = 3,
    limit_ns: int = 0,
    ahead: float = 0.0,
) -> Result:
    """Feeds all records, in arbitrary order and portions of at most `most` if shuffled, and runs to the end or to
    `limit_ns`. `ahead`: the chance that a shuffled run goes ahead of missing facts.
    """
    network = FixedNetwork(duration_ns)
    timeline = Timeline(len(scripts), network, queue_depth, paces=paces)
    if limit_ns:
        timeline.limit_ns = limit_ns
    fact_builder = new_fact_builder(len(scripts))
    arrivals = Arrivals(scripts, timeline, fact_builder)
    answers: dict[int, list[int]] = {}
    rooms: dict[int, list[int]] = {}
    ranks = range(len(scripts))
    while arrivals:
        for rank in shuffle.sample(ranks, len(ranks)) if shuffle else ranks:
            if arrivals.waits(rank):
                continue
            arrivals.feed(rank, shuffle.randint(0, most) if shuffle else arrivals.left(rank))
            if shuffle and shuffle.random() < 0.7:
                timeline.run(shuffle.randint(1, 20), ahead=bool(ahead) and shuffle.random() < ahead)
    while (stop := timeline.run(1000)) is Stop.BUDGET:
        continue
    for rank, answer in timeline.take_answers():
        answers.setdefault(rank, []).append(number(answer))
        (record,), _ = records.decode_down(answer)
        if record.kind == records.CLOCK:
            rooms.setdefault(rank, []).append(record.room)
    return Result(answers, timeline.now_ns, stop, timeline, network.begun, rooms)
