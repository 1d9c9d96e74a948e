"""What a record means at the moment it arrives, whatever virtual time it belongs to.

Some things need no virtual time: costs, who makes up a communicator, which calls belong together, small data. They are
answered here and now, so that ranks run on. What is left are facts for the timeline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from emu import records
from emu.records import RecordError
from phantora_async.communicators import Communicators
from phantora_async.costs import Costs
from phantora_async.exchange import FOLLOWS, Exchange
from phantora_async.failures import ProtocolError
from phantora_async.sites import Site, from_record
from phantora_async.virtual_time.facts import GatheringFact, LaunchFact


@dataclass(slots=True)
class Said:
    """What one rank has told about itself."""

    hello: records.Hello | None = None
    bye: records.Bye | None = None
    questions: int = 0
    """Asked and not answered."""
    last_question: Any = None
    """The record of the last one asked."""
    sites: dict[int, Site] = field(default_factory=dict)
    """By the rank's own numbers."""


@dataclass(slots=True)
class Warned:
    ranks: set[int] = field(default_factory=set)
    count: int = 0


class Intake:
    """``take`` records of a rank in their order; returns facts and leaves answers in ``outgoing``."""

    def __init__(self, world_size: int, costs: Costs) -> None:
        self._world_size = world_size
        self._costs = costs
        self._exchange = Exchange()
        self.communicators = Communicators()
        self.said = [Said() for _ in range(world_size)]
        self.warnings: dict[str, Warned] = {}
        self.outgoing: list[tuple[int, bytes]] = []
        """(rank, encoded record) that may leave at once."""
        self._special: dict[int, Callable[[int, Any], Any]] = {
            records.HELLO: self._hello,
            records.BYE: self._bye,
            records.WARNING: self._warning,
            records.SITE: self._site,
            records.NCCL_LAUNCH: self._launch,
            records.NCCL_DATA: self._data,
            records.COMM_INIT: self._comm_init,
            records.COMM_SPLIT: self._comm_split,
            records.COST: self._cost,
            records.CLOCK_READ: self._question,
            records.ELAPSED: self._question,
            records.QUERY: self._question,
        }

    def take(self, rank: int, arrived: list[Any]) -> list[Any]:
        """Facts for the timeline, in order. Raises RunFailure for what cannot be."""
        said = self.said[rank]
        if said.bye is not None and arrived:
            raise ProtocolError(rank, f"{records.NAMES[arrived[0].kind]} after BYE")
        if said.hello is None and arrived and arrived[0].kind != records.HELLO:
            raise ProtocolError(rank, f"{records.NAMES[arrived[0].kind]} before HELLO")
        find = self._special.get
        facts = []
        for record in arrived:
            special = find(record[0])
            if special is not None:
                record = special(rank, record)
                if record is None:
                    continue
            facts.append(record)
        return facts

    def end(self, rank: int) -> list[Any]:
        """The rank has ended well and said nothing: as if it had said BYE. Raises Deadlock if others wait for it."""
        bye = records.decode_up(records.Bye.encode(0, 0, 0))[0][0]
        assert isinstance(bye, records.Bye)
        return [self._bye(rank, bye)]

    def answered(self, rank: int) -> None:
        """A question of the rank has been answered by virtual time."""
        self.said[rank].questions -= 1

    def site(self, rank: int, number: int) -> Site | None:
        """What the rank announced under that number; None if it did not know."""
        return self.said[rank].sites.get(number)

    def _site(self, rank: int, record: records.Site) -> None:
        site = from_record(record)
        if site is not None:
            self.said[rank].sites[record.number] = site

    def _hello(self, rank: int, record: records.Hello) -> records.Hello:
        if self.said[rank].hello is not None:
            raise ProtocolError(rank, "HELLO twice")
        if (record.rank, record.world_size) != (rank, self._world_size):
            raise ProtocolError(rank, f"it says it is rank {record.rank} of {record.world_size}")
        self.said[rank].hello = record
        return record

    def _bye(self, rank: int, record: records.Bye) -> records.Bye:
        self.said[rank].bye = record
        if record.exit_code == 0:
            self.communicators.leave(rank)
        return record

    def _warning(self, rank: int, record: records.Warning) -> records.Warning:
        warned = self.warnings.setdefault(record.payload.rstrip(b"\0").decode(errors="replace"), Warned())
        warned.ranks.add(rank)
        warned.count += record.count
        return record

    def _launch(self, rank: int, record: records.NcclLaunch) -> LaunchFact:
        payload = record.payload
        try:
            ops = records.NcclOp.decode_all(payload, 0, record.nops)
        except RecordError as error:
            raise ProtocolError(rank, str(error)) from None
        start = record.nops * records.NcclOp.size()
        meetings = []
        for op in ops:
            meeting = self.communicators.join(rank, op, record.site)
            data = b""
            if op.data_nbytes and op.data_nbytes != FOLLOWS:
                data = payload[start : start + op.data_nbytes]
                if len(data) != op.data_nbytes:
                    raise ProtocolError(rank, f"NCCL_LAUNCH without the {op.data_nbytes} bytes it announces")
                start += op.data_nbytes + (-op.data_nbytes % 8)
            self.outgoing += self._exchange.join(rank, meeting, op, data)
            meetings.append(meeting)
        return LaunchFact(record.kind, record.site, record.nbytes, record.host_ns, record.stream, tuple(meetings))

    def _data(self, rank: int, record: records.NcclData) -> None:
        self.outgoing += self._exchange.late(rank, record)

    def _comm_init(self, rank: int, record: records.CommInit) -> GatheringFact:
        gathering, answers = self.communicators.init(rank, record)
        return self._gathering(rank, record, gathering, answers)

    def _comm_split(self, rank: int, record: records.CommSplit) -> GatheringFact:
        gathering, answers = self.communicators.split(rank, record)
        return self._gathering(rank, record, gathering, answers)

    def _gathering(self, rank: int, record: Any, gathering: Any, answers: list[tuple[int, bytes]]) -> GatheringFact:
        self._question(rank, record)
        self.outgoing += answers
        for other, _ in answers:
            self.said[other].questions -= 1
        return GatheringFact(record.kind, record.site, record.nbytes, record.host_ns, gathering)

    def _cost(self, rank: int, record: records.Cost) -> records.Cost | None:
        try:
            self.outgoing.append((rank, self._costs.answer(record)))
        except ValueError as error:
            raise ProtocolError(rank, str(error)) from None
        return record if record.host_ns else None

    def _question(self, rank: int, record: Any) -> Any:
        said = self.said[rank]
        said.questions += 1
        said.last_question = record
        return record
