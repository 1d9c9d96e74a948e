"""Where answers leave the simulation: once each, and, if that was too early, compared with what they should have been.

What has left cannot be taken back. In an exact run an answer leaves when it is final; should its question be executed
once more, the answer is the same and is dropped here. In an optimistic run answers leave when they are first simulated,
and when they become final it is known how wrong they were.
"""

from __future__ import annotations

from typing import NamedTuple

from emu.contract import records
from phantora_async.virtual_time.entities import Host


class Revisions(NamedTuple):
    """Answers of an optimistic run that turned out to be different from what had left."""

    early: int = 0
    """Answers that left before they were final."""
    revised: int = 0
    states: int = 0
    """Those of them that said whether work was done; the others told times."""
    max_ns: int = 0
    sum_ns: int = 0
    """By how much times were wrong."""


class AnswerRelease:
    def __init__(self, optimistic: bool) -> None:
        self.optimistic = optimistic
        self.revisions = Revisions()
        self._leaving: list[tuple[int, bytes]] = []
        self._early: dict[tuple[int, int], bytes] = {}

    def take(self) -> list[tuple[int, bytes]]:
        """(rank, encoded record) of what leaves now."""
        leaving, self._leaving = self._leaving, []
        return leaving

    def answer(self, host: Host, number: int, encoded: bytes) -> None:
        """The final answer to the host's fact of that number."""
        if number >= host.answered:
            self._send(host, number, encoded)
        elif self._early:
            early = self._early.pop((host.rank, number), None)
            if early is not None and early != encoded:
                self._revise(early, encoded)

    def answer_early(self, host: Host, number: int, encoded: bytes) -> None:
        """What the answer seems to be; leaves if the question has not been answered."""
        if number >= host.answered:
            self._send(host, number, encoded)
            self._early[host.rank, number] = encoded
            self.revisions = self.revisions._replace(early=self.revisions.early + 1)

    def _send(self, host: Host, number: int, encoded: bytes) -> None:
        host.answered = number + 1
        self._leaving.append((host.rank, encoded))

    def _revise(self, early: bytes, final: bytes) -> None:
        known = self.revisions._replace(revised=self.revisions.revised + 1)
        (was,), _ = records.decode_down(early)
        (now,), _ = records.decode_down(final)
        if isinstance(was, records.Clock) and isinstance(now, records.Clock):
            off_ns = abs(was.now_ns - now.now_ns)
        elif isinstance(was, records.ElapsedNs) and isinstance(now, records.ElapsedNs) and was.ready and now.ready:
            off_ns = abs(was.elapsed_ns - now.elapsed_ns)
        else:
            self.revisions = known._replace(states=known.states + 1)
            return
        self.revisions = known._replace(max_ns=max(known.max_ns, off_ns), sum_ns=known.sum_ns + off_ns)
