"""Since when the ranks of a communicator have called its collectives in different lines of the program.

Ranks that have skipped or added a call pair the wrong ones from there on. NCCL does not notice it as long as the calls
agree, and the failure comes later, at a line that is right. So the first collective whose callers were at different
lines is remembered, also when they are at the same line again: an additional forward of a sharded model pairs with the
others' forward, and then the forward with their backward, which has the same line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from phantora_async.errors import Side
from phantora_async.virtual_time import Collective


class DifferingCalls(NamedTuple):
    """Calls in a row of which ranks made each in different lines."""

    first: Side
    last: str
    """Describes the last one; "" if they go on to the communicator's last call."""


class DifferingLines:
    """The first of the last collectives in a row that were called in different lines, for each communicator."""

    def __init__(self, line_of: Callable[[int, int], int | None]) -> None:
        """`line_of`: a number for the line of a rank's call site, the same for all ranks; None if it is not known."""
        self._line_of = line_of
        self._since: dict[int, Collective] = {}
        self._until: dict[int, Collective] = {}
        """The last one so far."""
        self._ended: dict[int, tuple[Collective, Collective]] = {}
        """The first and the last one of the latest row that has ended."""

    def called(self, collective: Collective) -> None:
        """Takes note of a collective that all members have called."""
        comm = collective.comm.id
        lines = set(map(self._line_of, collective.joined, collective.sites))
        if len(lines) > 1 and None not in lines:
            self._since.setdefault(comm, collective)
            self._until[comm] = collective
        elif self._since and (first := self._since.pop(comm, None)) is not None:
            self._ended[comm] = first, self._until[comm]

    def of(self, comm: int) -> DifferingCalls | None:
        """The latest such calls on the communicator; None if all its collectives were called in one line each."""
        first = self._since.get(comm)
        if first is not None:
            return DifferingCalls(_side(first), "")
        if comm not in self._ended:
            return None
        first, last = self._ended[comm]
        return DifferingCalls(_side(first), last.describe())

    def restart(self) -> None:
        """Forgets everything, because all ranks start again."""
        self._since.clear()
        self._ended.clear()


def _side(collective: Collective) -> Side:
    return Side(collective.describe(), tuple(collective.joined), tuple(collective.sites))
