"""What a record means at the moment it arrives, whatever virtual time it belongs to.

Some things need no virtual time: costs, who makes up a communicator, which calls belong together, small data. They are
answered here and now, so that ranks run on. What is left are facts for the timeline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from emu.contract import records
from emu.contract.records import RecordError
from phantora_async.coordinator.communicators import Communicators
from phantora_async.coordinator.costs import Costs
from phantora_async.coordinator.data_exchange import FOLLOWS, DataExchange
from phantora_async.failures import ProtocolError
from phantora_async.liveness.call_sites import Site, from_record
from phantora_async.virtual_time.facts import CommCreationFact, NcclKernelFact


@dataclass(slots=True)
class RankInfo:
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


class FactBuilder:
    """``take`` records of a rank in their order; returns facts and leaves answers in ``outgoing``."""

    def __init__(self, world_size: int, costs: Costs) -> None:
        self._world_size = world_size
        self.costs = costs
        self._exchange = DataExchange()
        self.communicators = Communicators()
        self.rank_info = [RankInfo() for _ in range(world_size)]
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
        rank_info = self.rank_info[rank]
        if rank_info.bye is not None and arrived:
            raise ProtocolError(rank, f"{records.NAMES[arrived[0].kind]} after BYE")
        if rank_info.hello is None and arrived and arrived[0].kind != records.HELLO:
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
        self.rank_info[rank].questions -= 1

    def site(self, rank: int, number: int) -> Site | None:
        """What the rank announced under that number; None if it did not know."""
        return self.rank_info[rank].sites.get(number)

    def _site(self, rank: int, record: records.Site) -> None:
        site = from_record(record)
        if site is not None:
            self.rank_info[rank].sites[record.number] = site

    def _hello(self, rank: int, record: records.Hello) -> records.Hello:
        if self.rank_info[rank].hello is not None:
            raise ProtocolError(rank, "HELLO twice")
        if (record.rank, record.world_size) != (rank, self._world_size):
            raise ProtocolError(rank, f"it says it is rank {record.rank} of {record.world_size}")
        self.rank_info[rank].hello = record
        return record

    def _bye(self, rank: int, record: records.Bye) -> records.Bye:
        self.rank_info[rank].bye = record
        if record.exit_code == 0:
            self.communicators.leave(rank)
        return record

    def _warning(self, rank: int, record: records.Warning) -> records.Warning:
        warned = self.warnings.setdefault(record.payload.rstrip(b"\0").decode(errors="replace"), Warned())
        warned.ranks.add(rank)
        warned.count += record.count
        return record

    def _launch(self, rank: int, record: records.NcclLaunch) -> NcclKernelFact:
        payload = record.payload
        try:
            ops = records.NcclOp.decode_all(payload, 0, record.nops)
        except RecordError as error:
            raise ProtocolError(rank, str(error)) from None
        start = record.nops * records.NcclOp.size()
        collectives = []
        for op in ops:
            collective = self.communicators.join(rank, op, record.site)
            data = b""
            if op.data_nbytes and op.data_nbytes != FOLLOWS:
                data = payload[start : start + op.data_nbytes]
                if len(data) != op.data_nbytes:
                    raise ProtocolError(rank, f"NCCL_LAUNCH without the {op.data_nbytes} bytes it announces")
                start += op.data_nbytes + (-op.data_nbytes % 8)
            self.outgoing += self._exchange.join(rank, collective, op, data)
            collectives.append(collective)
        return NcclKernelFact(
            record.kind, record.site, record.nbytes, record.host_ns, record.stream, tuple(collectives)
        )

    def _data(self, rank: int, record: records.NcclData) -> None:
        self.outgoing += self._exchange.late(rank, record)

    def _comm_init(self, rank: int, record: records.CommInit) -> CommCreationFact:
        creation, answers = self.communicators.init(rank, record)
        return self._creation(rank, record, creation, answers)

    def _comm_split(self, rank: int, record: records.CommSplit) -> CommCreationFact:
        creation, answers = self.communicators.split(rank, record)
        return self._creation(rank, record, creation, answers)

    def _creation(self, rank: int, record: Any, creation: Any, answers: list[tuple[int, bytes]]) -> CommCreationFact:
        self._question(rank, record)
        self.outgoing += answers
        for other, _ in answers:
            self.rank_info[other].questions -= 1
        return CommCreationFact(record.kind, record.site, record.nbytes, record.host_ns, creation)

    def _cost(self, rank: int, record: records.Cost) -> records.Cost | None:
        try:
            self.outgoing.append((rank, self.costs.answer(record)))
        except RecordError as error:
            raise ProtocolError(rank, str(error)) from None
        return record if record.host_ns else None

    def _question(self, rank: int, record: Any) -> Any:
        rank_info = self.rank_info[rank]
        rank_info.questions += 1
        rank_info.last_question = record
        return record
