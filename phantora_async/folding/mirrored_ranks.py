"""The ranks without processes, as the coordinator's parts see them: who plays whom, with what records and answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from emu.contract.folding import Folding
from phantora_async.folding.answers import RoleAnswers
from phantora_async.folding.mirror import Mirror
from phantora_async.ingest.communicators import Communicators
from phantora_async.virtual_time import Timelines


class MirroredRanks:
    def __init__(
        self, folding: Folding, timelines: Timelines, servers: Sequence[int], communicators: Communicators
    ) -> None:
        """Among mirrored ranks that share a timeline, only the one that has it sends the records."""
        self._folding = folding
        self._played = {rank: timelines.having(others) for rank, others in folding.mirrored.items()}
        self._mirror = Mirror(folding, self._played, tuple(servers), communicators)
        self.answers = RoleAnswers(folding, self._played)

    def of(self, rank: int) -> tuple[int, ...]:
        """The ranks that this one's process plays besides its own, if they have timelines of their own."""
        return self._played.get(rank, ())

    def played_by(self, rank: int) -> int:
        """The rank whose process does this rank's work."""
        return self._folding.representative(rank)

    def with_played(self, ranks: Iterable[int]) -> list[int]:
        """These ranks, and those that they play, in ascending order."""
        return sorted(one for rank in ranks for one in (rank, *self.of(rank)))

    def records_after(self, rank: int, arrived: list[Any]) -> Iterator[tuple[int, list[Any]]]:
        """Yields the records that ranks without processes send now. The caller takes each rank's in before the next
        one's.
        """
        yield from self._mirror.records_of(rank, arrived)
        yield from self._mirror.released()
