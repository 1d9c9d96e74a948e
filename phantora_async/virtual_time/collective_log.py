"""One rank's collectives in order: what steps are found from when no marker tells where they end."""

from __future__ import annotations

from typing import NamedTuple

from emu.contract.records import NcclKind
from phantora_async.virtual_time.entities import Transfer

KEPT = 200_000


class CompletedCollective(NamedTuple):
    signature: int
    """Equal for collectives of the same kind, sizes and members."""
    at_ns: int


class CollectiveLog:
    """Keeps the first completed collectives of one rank."""

    __slots__ = ("_signatures", "completed", "rank")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._signatures: dict[tuple[object, ...], int] = {}
        self.completed: list[CompletedCollective] = []

    def add(self, transfer: Transfer, now_ns: int) -> None:
        collective = transfer.collective
        if self.rank not in collective.ranks or len(self.completed) >= KEPT:
            return
        members = collective.ranks if collective.op == NcclKind.SEND else collective.comm.id
        signature = (collective.op, collective.dtype, collective.count, collective.root, members)
        number = self._signatures.setdefault(signature, len(self._signatures))
        self.completed.append(CompletedCollective(number, now_ns))
