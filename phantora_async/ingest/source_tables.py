"""Answers where the sources of inputs are listed: members of large collectives tell each other this instead of bytes.

It does not depend on virtual time. The tables lie in the ranks' store; here are their names. A question about a
member's output is answered once the members that give it have made the call.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.errors import ProtocolError
from phantora_async.ingest.communicators import Answers, Communicators
from phantora_async.virtual_time import Timelines

MOST_CALLS = 1 << 16
"""The number of calls whose tables are remembered: the latest ones."""
FOLLOWS = (1 << 32) - 1
"""The entry of a table that is told later."""
_ROOTED = (NcclKind.BROADCAST, NcclKind.SCATTER)


class _Call(NamedTuple):
    """Identifies a collective, or a send with its receive."""

    comm: int
    seq: int
    sender: int
    """The places of sender and receiver in the communicator; -1 for collectives."""
    receiver: int


class _Asked(NamedTuple):
    rank: int
    question: records.SourcesOf


class SourceTables:
    """The tables that members have reported, by call."""

    def __init__(self, communicators: Communicators, timelines: Timelines) -> None:
        self._communicators = communicators
        self._timelines = timelines
        self._tables: OrderedDict[_Call, dict[int, records.NcclSources]] = OrderedDict()
        """The tables of each call, by the place of the member that reported it."""
        self._made: Counter[tuple[int, int, int]] = Counter()
        """Calls that a rank has made: by communicator, rank, and receiver of sends or -1."""
        self._asked: dict[tuple[int, int, int], list[_Asked]] = {}
        """The questions that wait for a rank's calls, by the keys of ``_made``."""
        self._late: dict[_Call, list[_Asked]] = {}
        """The questions that wait for tables that follow."""
        self._open: Counter[int] = Counter()
        """The number of each rank's questions that wait."""

    def told(self, record: records.NcclSources) -> Answers:
        """Takes the table of a member, before it makes the call, or the announcement of one. Returns answers that
        waited for it.
        """
        sends = record.op == NcclKind.SEND
        place = record.root if sends else record.place
        call = _Call(record.comm, record.seq, record.root, record.place) if sends else _collective(record)
        self._tables.setdefault(call, {})[place] = record
        if len(self._tables) > MOST_CALLS:
            self._tables.popitem(last=False)
        if record.entry == FOLLOWS:
            return []
        return [answer for asked in self._late.pop(call, ()) for answer in self._again(asked)]

    def made(self, rank: int, ops: Iterable[records.NcclOp]) -> Answers:
        """Records that a rank has made these calls. Returns answers that waited for them."""
        answers: Answers = []
        calls = Counter((op.comm, op.peer if op.op == NcclKind.SEND else -1) for op in ops if op.op != NcclKind.RECV)
        for (comm, receiver), count in calls.items():
            who = comm, rank, receiver
            self._made[who] += count
            for asked in self._asked.pop(who, ()):
                answers += self._again(asked)
        return answers

    def waits(self, rank: int) -> bool:
        """Returns true if the rank has asked and not been answered."""
        return self._open[rank] > 0

    def _again(self, asked: _Asked) -> Answers:
        self._open[asked.rank] -= 1
        return self.ask(asked.rank, asked.question)

    def ask(self, rank: int, question: records.SourcesOf) -> Answers:
        """Handles a rank's question for the sources of a member's output. Raises ProtocolError."""
        comm = self._communicators.by_id.get(question.comm)
        if comm is None or question.root >= len(comm.members):
            raise ProtocolError(rank, f"SOURCES_OF names member {question.root} of communicator {question.comm:#x}")
        sends = question.op == NcclKind.SEND
        if sends and self._timelines.exchange(rank, comm.members[question.root]):  # it gets what it sends
            question = question._replace(root=question.place, place=question.root)
        if sends:
            call, places = _Call(question.comm, question.seq, question.root, question.place), [question.root]
        else:
            call = _collective(question)
            places = [question.root] if question.op in _ROOTED else list(range(len(comm.members)))
        # A member that shares a timeline gives the input of the rank that has it.
        of = self._timelines.of
        places = [comm.rank_of[of(comm.members[place])] for place in places]
        for place in places:
            who = (question.comm, comm.members[place], question.place if sends else -1)
            if self._made[who] <= question.seq:
                return self._wait(self._asked.setdefault(who, []), rank, question)
        tables = self._tables.get(call, {})
        found = [tables.get(place) for place in places]
        if any(table is not None and table.entry == FOLLOWS for table in found):
            return self._wait(self._late.setdefault(call, []), rank, question)
        payload = b"".join(
            records.SourceTable.encode(table.key_low, table.key_high, table.entry, 0)
            if table is not None
            else bytes(records.SourceTable.size())
            for table in found
        )
        return [(rank, records.Sources.encode(question.qid, len(found), 0, payload=payload))]

    def _wait(self, waiting: list[_Asked], rank: int, question: records.SourcesOf) -> Answers:
        self._open[rank] += 1
        waiting.append(_Asked(rank, question))
        return []


def _collective(record: records.NcclSources | records.SourcesOf) -> _Call:
    return _Call(record.comm, record.seq, -1, -1)
