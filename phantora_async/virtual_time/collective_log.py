"""One rank's collectives in order: what steps are found from when no marker tells where they end."""

from __future__ import annotations

from emu.contract.records import NcclKind
from phantora_async.virtual_time.entities import Transfer

KEPT = 200_000


class CollectiveLog:
    """Notes each completed collective of one rank as (number of its signature, instant)."""

    __slots__ = ("_numbers", "notes", "rank", "truncated")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._numbers: dict[tuple[object, ...], int] = {}
        self.notes: list[tuple[int, int]] = []
        self.truncated = False

    def note(self, transfer: Transfer, now_ns: int) -> None:
        collective = transfer.collective
        if self.rank not in collective.ranks:
            return
        if len(self.notes) >= KEPT:
            self.truncated = True
            return
        who = collective.ranks if collective.op == NcclKind.SEND else collective.comm.id
        signature = (collective.op, collective.dtype, collective.count, collective.root, who)
        self.notes.append((self._numbers.setdefault(signature, len(self._numbers)), now_ns))

    def step_instants(self) -> list[int]:
        """Instants one period apart over the repeating end of the notes; empty if there is no repetition.

        The period is the smallest number of collectives with which the last three quarters of the notes repeat
        themselves at least three times. Its phase is arbitrary, its length is not.
        """
        numbers = [number for number, _ in self.notes]
        tail = numbers[len(numbers) // 4 :]
        period = _period(tail)
        if not period or len(tail) < 3 * period:
            return []
        instants = [at_ns for _, at_ns in self.notes[len(numbers) - len(tail) :]]
        return instants[(len(tail) - 1) % period :: period]


def _period(numbers: list[int]) -> int:
    """Smallest p with numbers[i] == numbers[i + p] throughout, by Knuth, Morris and Pratt's borders; 0 if empty."""
    borders = [0] * len(numbers)
    for place in range(1, len(numbers)):
        border = borders[place - 1]
        while border and numbers[place] != numbers[border]:
            border = borders[border - 1]
        borders[place] = border + (numbers[place] == numbers[border])
    return len(numbers) - borders[-1] if numbers else 0
