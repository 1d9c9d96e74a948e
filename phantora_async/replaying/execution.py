"""Executes a recording in virtual time: the rows of each rank, and the tables to which they refer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from emu.contract.records import NcclKind
from phantora_async.errors import ProtocolError
from phantora_async.recording.given_answers import RecordedAnswers
from phantora_async.recording.recording import Recording, Stream
from phantora_async.replaying.programs import programs_of, tables_of
from phantora_async.virtual_time import Collective, CommCreation, Stop, Timeline
from phantora_async.virtual_time.native.binding import bytes_at, int64s
from phantora_async.virtual_time.states import Totals

TURN = 20_000
"""The events after which the network may forget what is complete."""


class RecordedRun:
    """A recorded run, which a ``Timeline`` executes. `streams`: the rows of each rank that has a timeline of its
    own.
    """

    def __init__(self, recording: Recording, streams: Sequence[Stream]) -> None:
        """Makes the programs of the recording. Raises Damaged."""
        self._comms = list(recording.comms.values())
        self._calls = [call for kernel in recording.kernels for call in kernel]
        self._streams = streams
        self._timelines = recording.timelines
        self.programs = programs_of(recording, streams)
        self.tables = tables_of(recording)
        members = {id(one.members): one.members for one in recording.creations}
        asking = {number: len(recording.timelines.having(of_one)) for number, of_one in members.items()}
        self.creations = [CommCreation(one.label, asking[id(one.members)]) for one in recording.creations]
        self.gates = len(recording.sleeps)

    def collective(self, called: Any) -> Collective:
        """See ``Recorded``."""
        comm, call = self._comms[called.comm], self._calls[called.call]
        ranks, callers, offsets = comm.members, comm.callers, comm.offsets
        if call.op == NcclKind.SEND:
            ranks, callers = (comm.members[call.sender], comm.members[call.receiver]), None
            if call.callers == 1:
                callers = self._timelines.having(ranks)
            offsets = self._timelines.pair_offsets(comm, ranks)
        made = Collective(
            comm, called.seq, call.op, call.dtype, call.redop, call.elements, call.root, ranks, callers, offsets
        )
        made.exchange = bool(called.exchange)
        made.joined = list(made.callers)
        return made

    def counters(self, place: int, number: int) -> Totals:
        """See ``Recorded``."""
        return Totals._make(self._streams[place].counters[number - 1])


def execute(recording: Recording, timeline: Timeline) -> tuple[Stop, list[RecordedAnswers]]:
    """Executes the recording. `timeline`: one of a ``RecordedRun``. Returns why it stopped, and the answers of each
    rank that has a timeline of its own. Raises Damaged.
    """
    stop = Stop.BUDGET
    try:
        while stop is Stop.BUDGET:
            stop = timeline.run(TURN)
    except ProtocolError:
        view = timeline.engine.view()
        place = recording.own.index(view.bad_rank)
        row = timeline.engine.host(place).facts_done
        raise recording.damaged(f"rank {view.bad_rank}, row {row}: {view.bad.decode()}") from None
    return stop, [_answers(timeline, place) for place in range(len(recording.own))]


def _answers(timeline: Timeline, place: int) -> RecordedAnswers:
    view = timeline.engine.host(place)
    return RecordedAnswers(
        np.frombuffer(bytes_at(view.queries, view.nqueries), np.uint8),
        int64s(view.elapsed, 2 * view.nelapsed).reshape(-1, 2),
        int64s(view.clocks, view.nclocks),
    )
