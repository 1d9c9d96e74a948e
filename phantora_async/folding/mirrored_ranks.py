"""Ranks without processes, as the coordinator's parts see them: who plays whom, with what records and answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from emu.contract.folding import Folding
from phantora_async.folding.answers import RoleAnswers
from phantora_async.folding.mirror import Mirror
from phantora_async.ingest.communicators import Communicators


class MirroredRanks:
    def __init__(self, folding: Folding, servers: Sequence[int], communicators: Communicators) -> None:
        self._folding = folding
        self._mirror = Mirror(folding, tuple(servers), communicators)
        self.answers = RoleAnswers(folding)

    def of(self, rank: int) -> tuple[int, ...]:
        """The ranks that this one's process plays besides its own."""
        return self._folding.mirrored.get(rank, ())

    def played_by(self, rank: int) -> int:
        """The rank whose process does this rank's work."""
        return self._folding.representative(rank)

    def with_played(self, ranks: Iterable[int]) -> list[int]:
        """These ranks, and those that they play."""
        return sorted(one for rank in ranks for one in (rank, *self.of(rank)))

    def records_after(self, rank: int, arrived: list[Any]) -> Iterator[tuple[int, list[Any]]]:
        """What ranks without processes send now. The caller takes each rank's in before the next one's."""
        yield from self._mirror.records_of(rank, arrived)
        yield from self._mirror.released()
