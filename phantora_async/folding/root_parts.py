"""Finds the data that a mirrored rank gives where one member gives all: its representative gives it elsewhere.

A broadcast's root stays where it is, so the representative and the mirrored rank are roots of different calls. Ranks
that are roots in turn, as in an all-gather that is made of broadcasts, give in their turn what the representative gave
in its own, which comes first.
"""

from __future__ import annotations

from typing import NamedTuple

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.ingest.data_exchange import FOLLOWS

ONE_GIVES = (NcclKind.BROADCAST, NcclKind.SCATTER)


class _Given(NamedTuple):
    """The part that the representative has given as root."""

    op: records.NcclOp
    part: bytes


_Call = tuple[int, int, int]
"""A mirrored rank, its communicator, and the number of the representative's call."""


class RootParts:
    def __init__(self) -> None:
        self._given: dict[tuple[int, int], _Given] = {}
        """The latest part, by mirrored rank and communicator."""
        self._announced: dict[_Call, records.NcclOp | records.NcclData | None] = {}
        """Calls whose part comes later: the mirrored rank's own call, which waits for it; or the part, which waits for
        that call; None: neither has come."""
        self.ready: list[records.NcclData] = []
        """The parts for calls that have just been made. The caller takes them."""

    def of(
        self, mirrored: int, op: records.NcclOp, part: bytes, place: int, its_place: int
    ) -> tuple[records.NcclOp, bytes]:
        """The mirrored rank's call and its part of it. `op`: the call with its communicator; `place`: the
        representative's place, `its_place`: the mirrored rank's.
        """
        if place == its_place or op.peer not in (place, its_place):
            return op, part
        if op.peer == place:
            self._given[mirrored, op.comm] = _Given(op, part)
            if op.data_nbytes == FOLLOWS:
                self._announced[mirrored, op.comm, op.seq] = None
            return op._replace(data_nbytes=0), b""
        given = self._given.get((mirrored, op.comm))
        if given is None or (given.op.op, given.op.count, given.op.dtype) != (op.op, op.count, op.dtype):
            return op, b""
        if given.op.data_nbytes == FOLLOWS:
            call = mirrored, op.comm, given.op.seq
            come = self._announced.get(call)
            if isinstance(come, records.NcclData):
                del self._announced[call]
                self.ready.append(come._replace(seq=op.seq, peer=op.peer))
            else:
                self._announced[call] = op
        return op._replace(data_nbytes=given.op.data_nbytes), given.part

    def later(self, mirrored: int, record: records.NcclData) -> records.NcclData | None:
        """A part that was announced, as the mirrored rank sends it; None: it sends none now."""
        call = mirrored, record.comm, record.seq
        if call not in self._announced:
            return record
        turn = self._announced.pop(call)
        if isinstance(turn, records.NcclOp):
            return record._replace(seq=turn.seq, peer=turn.peer)
        self._announced[call] = record
        return None
