"""The ranks without processes, as the coordinator's parts see them: who plays whom, with what records and answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from emu.contract import records
from emu.contract.folding import CannotFold, Folding
from phantora_async.errors import NotFoldable
from phantora_async.folding.answers import RoleAnswers
from phantora_async.folding.mirror import Mirror
from phantora_async.ingest.communicators import Communicators, stated_members
from phantora_async.virtual_time import Timelines
from phantora_async.virtual_time.facts import PAIRWISE


class MirroredRanks:
    def __init__(
        self, folding: Folding, timelines: Timelines, servers: Sequence[int], communicators: Communicators
    ) -> None:
        """Among mirrored ranks that share a timeline, only the one that has it sends the records."""
        self._folding = folding
        self._played = {rank: timelines.having(others) for rank, others in folding.mirrored.items()}
        self._shared = timelines.shared
        self._communicators = communicators
        self._mirror = Mirror(folding, self._played, tuple(servers), communicators)
        self.answers = RoleAnswers(folding, self._played)

    def of(self, rank: int) -> tuple[int, ...]:
        """The ranks that this one's process plays besides its own, if they have timelines of their own."""
        return self._played.get(rank, ())

    def played_by(self, rank: int) -> int:
        """The rank whose process does this rank's work."""
        return self._folding.representative(rank)

    def with_played(self, ranks: Iterable[int]) -> list[int]:
        """Returns these ranks and those that they play, in ascending order."""
        return sorted(one for rank in ranks for one in (rank, *self.of(rank)))

    def check(self, rank: int, arrived: list[Any]) -> None:
        """Checks what a rank sends to ranks of its own role. Raises NotFoldable.

        In a ring in which each rank sends to the next one, a rank sends and receives in one call, or some ranks send
        first and others receive first: if all did the same, none would continue. In the latter case the ranks of one
        role differ.
        """
        for record in arrived:
            peer = None
            if record.kind == records.NCCL_LAUNCH:
                peer = self._one_way(rank, record)
            elif record.kind == records.COMM_INIT:
                peer = self._of_pair(rank, record)
            if peer is not None:
                failure = NotFoldable.of(self._alternating(rank, peer))
                failure.needs_each = self._shared
                raise failure

    def _one_way(self, rank: int, record: records.NcclLaunch) -> int | None:
        """The rank of the same role to or from which this launch has a message, if all its messages go one way."""
        ops = records.NcclOp.decode_all(record.payload, 0, record.nops)
        if len(kinds := {op.op for op in ops}) != 1 or kinds.isdisjoint(PAIRWISE):
            return None
        role = self._folding.mesh.role(rank)
        for op in ops:
            members = self._communicators.of(rank, op.comm).members
            if op.peer < len(members) and self._folding.mesh.role(members[op.peer]) == role:
                return members[op.peer]
        return None

    def _of_pair(self, rank: int, record: records.CommInit) -> int | None:
        """The other rank of a communicator for the messages of two ranks of one role. PyTorch makes it for messages in
        calls of their own, and both ranks wait in their first message until both have asked for it.
        """
        stated = stated_members(record)
        if stated is None or not stated.group:
            return None
        role = self._folding.mesh.role
        return next((peer for peer in stated.members if peer != rank and role(peer) == role(rank)), None)

    def _alternating(self, rank: int, peer: int) -> CannotFold:
        return CannotFold(
            f"rank {rank} sends to or receives from rank {peer}, along a folded axis, in calls of their own: some "
            "ranks of its role do the one first, others the other",
            str(self._folding.mesh.with_neighbours_apart(rank, peer)),
        )

    def records_after(self, rank: int, arrived: list[Any]) -> Iterator[tuple[int, list[Any]]]:
        """Yields the records that ranks without processes send now. The caller takes each rank's in before the next
        one's.
        """
        yield from self._mirror.records_of(rank, arrived)
        yield from self._mirror.released()
