"""Finds the input that a root gives when ranks share a timeline: in its turn, a rank that shares a timeline gives what
the rank that has the timeline gave in its own turn, which comes first.

Ranks are roots in turn in an all-gather of parts of different sizes, which torch makes of broadcasts. A turn of the
rank that has the timeline stands for one turn of each that shares it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.virtual_time import Timelines
from phantora_async.virtual_time.facts import Collective

ONE_GIVES = (NcclKind.BROADCAST, NcclKind.SCATTER)


@dataclass(slots=True)
class Turn:
    """The input that a rank with a timeline has given as root."""

    seq: int
    kind: tuple[int, int, int]
    """The operation, the type and the count."""
    data: bytes
    late: bool
    """True if the input was announced for later."""
    record: records.NcclData | None = None
    """The record with the input, once it has come."""
    given_again: set[int] = field(default_factory=set)
    """The ranks that have had the turn for which this one stands."""
    waiting: list[Collective] = field(default_factory=list)
    """The calls of these ranks that wait until the input comes."""


class SharedRoots:
    def __init__(self, timelines: Timelines) -> None:
        self._timelines = timelines
        self._turns: dict[tuple[int, int], Turn] = {}
        """The latest turn, by rank with a timeline, and communicator."""

    def gives(self, rank: int, collective: Collective, data: bytes, late: bool) -> Turn | None:
        """Records that the rank joins. Returns the turn whose input the root gives, if the root shares this rank's
        timeline.

        `data`, `late`: the rank's own input. It is kept if the rank is the root.
        """
        if collective.op not in ONE_GIVES:
            return None
        root = collective.ranks[collective.root]
        if self._timelines.of(root) != rank:
            return None
        kind = collective.op, collective.dtype, collective.count
        if root == rank:
            self._turns[rank, collective.comm.id] = Turn(collective.seq, kind, data, late)
            return None
        turn = self._turns.get((rank, collective.comm.id))
        if turn is None or turn.kind != kind or root in turn.given_again:
            return None
        turn.given_again.add(root)
        if turn.late and turn.record is None:
            turn.waiting.append(collective)
        return turn

    def later(self, rank: int, record: records.NcclData) -> list[Collective]:
        """Takes the announced input of the rank. Returns the calls that wait for it."""
        turn = self._turns.get((rank, record.comm))
        if turn is None or turn.seq != record.seq or record.op not in ONE_GIVES:
            return []
        turn.record = record
        waiting, turn.waiting = turn.waiting, []
        return waiting
