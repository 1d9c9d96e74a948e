"""Answers that are certain before virtual time comes to their question: they leave at once.

A rank asks whether an event is complete, and cannot go on without the answer. Virtual time comes to the question only
when every other rank has said what it did until then, so ranks would run one after the other. But as soon as the
question is the host's next fact, its instant is known, and mostly the answer too, whatever other ranks still say: what
is complete stays complete, and work takes no less time than it takes on a GPU that does nothing else. Ranks that ask at
about the same time then run side by side.

This is looked at when the fact before the question has been executed, a moment in the total order. So which answers
leave early follows from the facts alone. What left is compared with the answer that is found in its time.
"""

from __future__ import annotations

from emu.contract import records
from emu.contract.records import ScopeKind
from phantora_async.faults.pace import FULL_PACE
from phantora_async.virtual_time.collectives import Collectives
from phantora_async.virtual_time.entities import EventRecording, Host, NcclKernel, Segment, Stream, StreamState, Wait
from phantora_async.virtual_time.event_queue import EventQueue
from phantora_async.virtual_time.output import Output
from phantora_async.virtual_time.polls import poll_ns, polls_by
from phantora_async.virtual_time.streams import left_of
from profiles.gpu_sharing import WORK_UNIT

FURTHEST_NS = 1_000_000
"""How far ahead of virtual time an answer leaves. A rank that sleeps where no record tells of it may be woken by a rank
that was answered early, and then goes on by as much too early."""
DEEPEST = 8
"""Streams that wait for each other, of which this looks at so many."""


class Foresight:
    def __init__(self, event_queue: EventQueue, collectives: Collectives, output: Output) -> None:
        self._event_queue = event_queue
        self._collectives = collectives
        self._output = output

    def look(self, host: Host, due_ns: int) -> bool:
        """The host's next fact is known, and due later. Does its answer leave now?"""
        fact = host.log[host.cursor]
        if fact.kind != records.QUERY or fact.scope != ScopeKind.EVENT or host.retry:
            return False
        if host.facts_done < host.answered or due_ns > self._event_queue.now_ns + FURTHEST_NS:
            return False
        recording = host.recordings.get(fact.recording)
        if recording is None:
            return False  # a mistake of the rank's, which is told when its time comes
        by_ns = due_ns - fact.since_ns
        done = 0 <= recording.done_ns <= by_ns
        if recording.done_ns < 0:
            polls = fact.turns or (not fact.since_ns and poll_ns(polls_by(host, due_ns)) > 0)
            if polls or self._not_before(recording, DEEPEST) <= by_ns:
                return False
        self._output.answer_early(host, records.Done.encode(fact.qid, int(done), 1))
        return True

    def _not_before(self, recording: EventRecording, depth: int) -> int:
        """An instant before which the pending recording cannot be complete."""
        stream = recording.stream
        head = stream.items[stream.head]
        if type(head) is Segment:
            return max(self._end_of_segment(stream, head), head.floor_ns)
        if type(head) is NcclKernel:
            return max(map(self._collectives.not_before, head.collectives))
        if type(head) is Wait and stream.state is StreamState.BLOCKED and depth:
            return self._not_before(head.recording, depth - 1)
        return self._event_queue.now_ns

    def _end_of_segment(self, stream: Stream, segment: Segment) -> int:
        """If from now on nothing else ran on its GPU."""
        left = left_of(stream, self._event_queue.now_ns)
        fastest = segment.contended_ns * WORK_UNIT * (1 if stream.device.pace is None else FULL_PACE)
        return self._event_queue.now_ns + (-(-left // fastest) if left > 0 else 0)
