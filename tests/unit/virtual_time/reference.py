"""A reference of virtual time: its rules in plain Python, for ranks all of whose records are known.

It goes from instant to instant and looks at everything: it has no queue, no history and no speed. It leaves out what
has tests of its own: slow and dead GPUs, limits, restarts, questions in a row, aborts, shares of time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from emu.contract import records
from emu.contract.records import MarkerKind, ScopeKind
from phantora_async.virtual_time import Collective, CommCreation

ONE, UNIT, FULL, FULL_SLOWDOWN = 320, 65536, 16, 8
"""Constants of ``profiles/gpu_sharing.def``."""


@dataclass(eq=False)
class Recording:
    """A recorded event."""

    stream: Stream
    done_ns: int = -1


@dataclass(eq=False)
class Segment:
    """Work of a stream, in units of which it does so many a nanosecond."""

    fact: Any
    floor_ns: int
    left: int = 0
    rate: int = 0
    since_ns: int = 0

    @property
    def contended_ns(self) -> int:
        """Returns the segment's duration beside NCCL, in ns."""
        return int(max(self.fact.contended_ns, self.fact.solo_ns))

    @property
    def fill(self) -> int:
        """Returns how much of the GPU the segment takes."""
        solo_ns, more_ns = self.fact.solo_ns, self.contended_ns - self.fact.solo_ns
        if not more_ns:
            return 0
        return min(FULL, FULL * FULL_SLOWDOWN * more_ns // solo_ns) if solo_ns else FULL

    def left_at(self, now_ns: int) -> int:
        """Returns the units that are not done."""
        return max(self.left - self.rate * (now_ns - self.since_ns), 0)

    def due_ns(self) -> int:
        """Returns when the segment's work is done at this rate; if it is done, when the segment ends."""
        return self.since_ns - (-self.left // self.rate) if self.left else max(self.floor_ns, self.since_ns)


@dataclass(eq=False)
class Kernel:
    """An NCCL kernel."""

    stream: Stream
    collectives: tuple[Collective, ...]
    left: int


@dataclass(eq=False)
class Step:
    """A step's end on a host."""

    number: int
    host_ns: int
    pending: int


@dataclass(eq=False)
class Stream:
    """A queue of segments, recordings, kernels, ends of steps, and ("wait", recording)."""

    host: Host
    number: int
    items: deque[Any] = field(default_factory=deque)
    started: bool = False
    launches: int = 0

    def leave(self, launches: int) -> None:
        """Removes the first item, which has ended."""
        self.items.popleft()
        self.started, self.launches = False, self.launches - launches


@dataclass(eq=False)
class Host:
    """A rank's program."""

    rank: int
    facts: deque[Any]
    clock_ns: int = 0
    streams: dict[int, Stream] = field(default_factory=dict)
    draining: list[Stream] = field(default_factory=list)
    recordings: dict[int, Recording] = field(default_factory=dict)
    waits: Callable[[], bool] | None = None
    retries: bool = False
    finished: bool = False
    answers: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    ends: list[tuple[int, int, int]] = field(default_factory=list)  # step, when its host and its work came there
    resident: int = 0

    def due_ns(self) -> int | None:
        """Returns when the host executes its next fact; None: it waits for something else."""
        if self.waits is not None or not self.facts:
            return None
        return int(self.clock_ns if self.retries else self.clock_ns + self.facts[0].host_ns)

    def all_streams(self) -> list[Stream]:
        """Returns the host's streams, and those that have work, though they are destroyed."""
        return [*(stream for _, stream in sorted(self.streams.items())), *self.draining]

    def running(self) -> list[tuple[Stream, Segment]]:
        """Returns the segments that are at the head of a stream."""
        heads = ((one, one.items[0]) for one in self.all_streams() if one.items and one.started)
        return [(stream, head) for stream, head in heads if isinstance(head, Segment)]


class Reference:
    """``run`` to the end. `facts`: of each rank. `duration_ns`: of a collective, whatever else moves."""

    def __init__(self, facts: Sequence[Sequence[Any]], duration_ns: Callable[[Collective], int], depth: int) -> None:
        self.hosts = [Host(rank, deque(its)) for rank, its in enumerate(facts)]
        self.now_ns = 0
        self.begun: list[tuple[int, str]] = []
        self._duration_ns = duration_ns
        self._depth = depth
        self._arrived: dict[Collective, list[Kernel]] = {}
        self._moving: dict[Collective, int] = {}
        self._asked: dict[CommCreation, int] = {}

    def run(self) -> None:
        """Goes from event to event: by instant, then what the network completes, then streams, then hosts; then by
        rank.
        """
        while (at_ns := self._next_ns()) is not None:
            self.now_ns = at_ns
            if not self._complete() and not self._finish():
                self._execute(next(host for host in self.hosts if host.due_ns() == at_ns))
            self._settle()

    def _next_ns(self) -> int | None:
        segments = [one.due_ns() for host in self.hosts for _, one in host.running()]
        hosts = [at_ns for host in self.hosts if (at_ns := host.due_ns()) is not None]
        return min([*self._moving.values(), *segments, *hosts], default=None)

    def _execute(self, host: Host) -> None:
        host.clock_ns, host.retries = self.now_ns, False
        host.retries = not self._execute_fact(host, host.facts[0])
        if not host.retries:
            host.facts.popleft()

    def _execute_fact(self, host: Host, fact: Any) -> bool:
        """Executes a fact. Returns False if it is to be executed again."""
        kind = fact.kind
        if kind == records.STREAM_CREATE:
            host.streams[fact.stream] = Stream(host, fact.stream)
        elif kind == records.STREAM_DESTROY:
            host.draining.append(host.streams.pop(fact.stream))
        elif kind in (records.SEGMENT, records.NCCL_LAUNCH):
            return self._launch(host, fact)
        elif kind == records.EVENT_RECORD:
            recording = host.recordings[fact.recording] = Recording(host.streams[fact.stream])
            recording.stream.items.append(recording)
            host.recordings.pop(fact.drop, None)
        elif kind == records.RECORDING_DROP:
            del host.recordings[fact.recording]
        elif kind == records.STREAM_WAIT:
            host.streams[fact.stream].items.append(("wait", host.recordings[fact.recording]))
        elif kind == records.HOST_WAIT:
            host.waits = self._until(host, fact)
        elif kind in (records.COMM_INIT, records.COMM_SPLIT):
            self._join(host, (fact.creation,), waits=True)
        elif kind == records.CONNECT:
            self._join(host, fact.creations, waits=fact.waits)
        elif kind == records.MARKER and fact.marker == MarkerKind.STEP:
            busy = [stream for stream in host.streams.values() if stream.items]
            host.steps.append(step := Step(len(host.steps), self.now_ns, len(busy)))
            if not busy:
                host.ends.append((step.number, step.host_ns, self.now_ns))
            for stream in busy:
                stream.items.append(step)
        elif kind == records.BYE:
            host.finished = True
        else:
            self._ask(host, fact)
        return True

    def _join(self, host: Host, creations: tuple[CommCreation, ...], waits: bool) -> None:
        for one in creations:
            self._asked[one] = self._asked.get(one, 0) + 1
        if waits:
            host.waits = lambda: all(self._asked[one] >= one.size for one in creations)

    def _ask(self, host: Host, fact: Any) -> None:
        if fact.kind == records.CLOCK_READ:
            host.answers.append(self.now_ns)
        elif fact.kind == records.ELAPSED:
            start, end = host.recordings[fact.start_recording], host.recordings[fact.end_recording]
            host.answers.append(end.done_ns - start.done_ns if min(start.done_ns, end.done_ns) >= 0 else 0)
        elif fact.kind == records.QUERY:
            done_ns = host.recordings[fact.recording].done_ns
            host.answers.append(int(0 <= done_ns <= self.now_ns - fact.since_ns))

    def _until(self, host: Host, fact: Any) -> Callable[[], bool]:
        recording, stream = host.recordings.get(fact.recording), host.streams.get(fact.stream)
        if fact.scope == ScopeKind.EVENT and recording is not None:
            return lambda: recording.done_ns >= 0
        if fact.scope == ScopeKind.STREAM and stream is not None:
            return lambda: not stream.items
        return lambda: not any(one.items for one in host.all_streams())

    def _launch(self, host: Host, fact: Any) -> bool:
        stream = host.streams[fact.stream]
        is_kernel = fact.kind == records.NCCL_LAUNCH
        if is_kernel and not fact.collectives:
            return True
        launches = 1 if is_kernel else fact.launches
        if stream.launches and stream.launches + launches > self._depth:
            host.waits = lambda: stream.launches <= max(self._depth - launches, 0)
            return False
        stream.launches += launches
        if is_kernel:
            stream.items.append(Kernel(stream, fact.collectives, len(fact.collectives)))
        else:
            stream.items.append(Segment(fact, self.now_ns + fact.tail_ns))
        return True

    def _settle(self) -> None:
        """Lets go on what can go on at this instant, until nothing can."""
        moved = True
        while moved:
            moved = False
            for host in self.hosts:
                for stream in host.all_streams():
                    while stream.items and not stream.started and self._take_up(host, stream):
                        moved = True
                if host.waits is not None and host.waits():
                    host.waits, host.clock_ns, moved = None, self.now_ns, True

    def _take_up(self, host: Host, stream: Stream) -> bool:
        """Begins the stream's first item. Returns False if it waits."""
        item = stream.items[0]
        if isinstance(item, tuple):
            if item[1].done_ns < 0:
                return False
        elif isinstance(item, Recording):
            item.done_ns = self.now_ns
        elif isinstance(item, Step):
            item.pending -= 1
            if item.pending == 0:
                host.ends.append((item.number, item.host_ns, self.now_ns))
        else:
            stream.started = True
            if isinstance(item, Segment):
                item.left, item.since_ns = item.fact.solo_ns * item.contended_ns * UNIT, self.now_ns
                self._change_rates(host)
            else:
                self._arrive(host, item)
            return True
        stream.items.popleft()
        return True

    def _finish(self) -> bool:
        """Ends a segment's work, or the segment. Returns False if there is none."""
        every = ((host, stream, segment) for host in self.hosts for stream, segment in host.running())
        for host, stream, segment in every:
            if segment.due_ns() == self.now_ns:
                if not segment.left_at(self.now_ns) and self.now_ns >= segment.floor_ns:
                    stream.leave(segment.fact.launches)
                self._change_rates(host)
                return True
        return False

    def _change_rates(self, host: Host) -> None:
        working = [one for _, one in host.running() if one.left_at(self.now_ns)]
        total = sum(one.fill for one in working)
        for _, one in host.running():
            one.left, one.since_ns = one.left_at(self.now_ns), self.now_ns
        for one in working:
            alone = (one.fact.solo_ns if host.resident else one.contended_ns) * UNIT
            one.rate = alone * ONE // (ONE + one.fill * (total - one.fill))

    def _arrive(self, host: Host, kernel: Kernel) -> None:
        host.resident += 1
        self._change_rates(host)
        for collective in kernel.collectives:
            self._arrived.setdefault(collective, []).append(kernel)
            if len(self._arrived[collective]) == len(collective.callers):
                self.begun.append((self.now_ns, collective.describe()))
                self._moving[collective] = self.now_ns + max(self._duration_ns(collective), 1)

    def _complete(self) -> bool:
        done = sorted(one for one, at_ns in self._moving.items() if at_ns == self.now_ns)
        for collective in done:
            del self._moving[collective]
            for kernel in self._arrived.pop(collective):
                kernel.left -= 1
                if not kernel.left:
                    kernel.stream.leave(1)
                    kernel.stream.host.resident -= 1
                    self._change_rates(kernel.stream.host)
        return bool(done)
