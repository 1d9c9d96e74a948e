"""Watches loops of ranks that wait for a value that is not computed, and ends runs in which they have waited for too
many turns or too long.

The ranks recognise them (`emu.reads`). Such a rank is busy and launches work, so it makes visible progress and no stall
is seen. ``--loop-turns`` and, for loops with long turns, ``--stall-timeout`` are the limits.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from time import monotonic

from phantora_async.ingest.call_sites import Line
from phantora_async.ingest.uncomputed_reads import UncomputedReads, WaitingLoop
from phantora_async.liveness.patience import STALL_S, limit_s
from phantora_async.wording import named

SHOWN_S = 3.0
"""The seconds below which loops are not shown."""
MORE_TURNS = 8
"""The turns beyond the limit by which ranks whose collectives the loop waits for have reported the same loop."""
PATIENCE_S = 30.0
"""The real seconds in which a rank beyond the limit may do these turns, on a machine that is busy with other things."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The ranks that go round the same loop."""

    ranks: tuple[int, ...]
    loop: WaitingLoop
    """The loop, with the most turns of any of these ranks."""
    for_s: float
    limit: str
    """The option whose limit has been reached; "" if none has."""

    def __str__(self) -> str:
        """The wait as text: ``rank 0 has repeated the loop at train.py:41 in main 35 times: it waits for a value that
        is not ...``
        """
        one, loop = len(self.ranks) == 1, self.loop
        who = f"{named(self.ranks)} {'has' if one else 'have'}"
        value = f"a value that {'--value states' if loop.stated else 'is not computed'}"
        return f"{who} repeated the loop at {loop.begins} {loop.turns:,} times: it waits for {value}"

    def explanation(self) -> str:
        loop = self.loop
        text = f"it can end only by what is read at {loop.read}: {loop.dtype}"
        text += f", of {loop.operation}" if loop.operation else ""
        if loop.stated:
            return text
        return f"{text}; to state this value: --value '{loop.read.place}=EXPRESSION'; to let it go on: --loop-turns 0"


class LoopWatch:
    def __init__(
        self, reads: UncomputedReads, connected: Collection[int], most_turns: int, most_s: float | None
    ) -> None:
        """`connected`: the ranks that are connected. `most_turns`: 0 stands for no limit; `most_s`: see ``limit_s``."""
        self._reads = reads
        self._connected = connected
        self._most_turns = most_turns
        self._most_s = limit_s(most_s, STALL_S)
        self._since: dict[int, tuple[Line, float]] = {}
        """The loop that each rank goes round, and since when."""
        self._over_since_s: float | None = None
        """The real time at which a rank was seen beyond the limit of turns."""

    def look(self) -> Waiting | None:
        """The ranks whose loop has gone round for longest in real time."""
        now_s = monotonic()
        loops = {rank: (loop.begins, loop) for rank, loop in self._reads.loops.items()}
        known = self._since
        self._since = {
            rank: known[rank] if rank in known and known[rank][0] == place else (place, now_s)
            for rank, (place, _) in loops.items()
        }
        if not loops:
            return None
        over = [rank for rank, (_, loop) in loops.items() if 0 < self._most_turns <= loop.turns]
        self._over_since_s = (self._over_since_s or now_s) if over else None
        first = over[0] if over else min(self._since, key=lambda rank: self._since[rank][1])
        place, since_s = self._since[first]
        ranks = [rank for rank, (where, _) in loops.items() if where == place]
        loop = max((loops[rank][1] for rank in ranks), key=lambda loop: loop.turns)
        for_s = now_s - since_s
        limit = "--stall-timeout" if self._most_s < for_s else ""
        if self._over_since_s is not None and self._all_told(ranks, loop.turns, now_s - self._over_since_s):
            limit = "--loop-turns"
        if not limit and for_s < SHOWN_S:
            return None
        return Waiting(tuple(sorted(ranks)), loop, for_s, limit)

    def _all_told(self, ranks: Collection[int], turns: int, over_for_s: float) -> bool:
        """Returns true if every rank that goes round this loop has reported it. The first one beyond the limit is not
        the only one of a job, and the message names all.
        """
        return len(ranks) >= len(self._connected) or turns >= self._most_turns + MORE_TURNS or over_for_s > PATIENCE_S
