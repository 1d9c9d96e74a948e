"""Since when the ranks of a communicator have called its collectives in different lines of the program.

Ranks that have skipped or added a call pair the wrong ones from there on. NCCL does not notice it as long as the calls
agree, and the failure comes later, at a line that is right. So the first collective whose callers were at different
lines is remembered, until they are at the same line again.
"""

from __future__ import annotations

from collections.abc import Callable

from phantora_async.errors import Side
from phantora_async.virtual_time import Collective


class DifferingLines:
    """The first of the last collectives in a row that were called in different lines, for each communicator."""

    def __init__(self, line_of: Callable[[int, int], int | None]) -> None:
        """`line_of`: a number for the line of a rank's call site, the same for all ranks; None if it is not known."""
        self._line_of = line_of
        self._since: dict[int, Collective] = {}

    def called(self, collective: Collective) -> None:
        """Takes note of a collective that all members have called."""
        lines = set(map(self._line_of, collective.joined, collective.sites))
        if len(lines) > 1 and None not in lines:
            self._since.setdefault(collective.comm.id, collective)
        elif self._since:
            self._since.pop(collective.comm.id, None)

    def since(self, comm: int) -> Side | None:
        """The calls with which it began on the communicator; None if its last collective was called in one line."""
        first = self._since.get(comm)
        return Side(first.describe(), tuple(first.joined), tuple(first.sites)) if first is not None else None

    def restart(self) -> None:
        """Forgets everything, because all ranks start again."""
        self._since.clear()
