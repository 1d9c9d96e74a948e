"""Gives one answer for all ranks of a role: their representative has one process, which goes on once.

The rank that comes to a question first decides what the process is told: so it waits for no rank that is later. The
others' answers are compared with that. Where all ranks of a role are alike, they are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from emu.contract import records
from emu.contract.folding import Folding
from phantora_async.ingest.communicators import Answers


@dataclass(slots=True)
class Differing:
    """Counts answers of a mirrored rank, or its representative, that differ from the one that its role was given."""

    states: int = 0
    """The number of differing answers that say whether work is complete."""
    times: int = 0
    most_ns: int = 0
    """The largest difference between times, in ns."""

    def document(self) -> dict[str, int]:
        """The counts for the report."""
        return asdict(self)


class RoleAnswers:
    def __init__(self, folding: Folding, played: Mapping[int, Sequence[int]]) -> None:
        """`played`: for each rank that has a process, the other ranks that are answered."""
        self._representative = [folding.representative(rank) for rank in range(folding.mesh.world_size)]
        self._others = {rank: len(others) for rank, others in played.items()}
        self._answered = [0] * folding.mesh.world_size
        """Questions of each rank that have been answered."""
        self._given: dict[tuple[int, int], tuple[bytes, int]] = {}
        """By representative and number of the question: the answer that its process was given, and the number of ranks
        of the role that have not come to the question.
        """
        self._passed_on = dict.fromkeys(self._others, 0)
        self.differing = Differing()

    def first(self, answers: Answers) -> Answers:
        """The answers among these of virtual time that processes are told."""
        passed_on: Answers = []
        for rank, encoded in answers:
            process = self._representative[rank]
            others = self._others[process]
            if not others:
                passed_on.append((rank, encoded))
                continue
            number = self._answered[rank]
            self._answered[rank] += 1
            if number == self._passed_on[process]:
                self._passed_on[process] += 1
                self._given[process, number] = encoded, others
                passed_on.append((process, encoded))
                continue
            given, left = self._given.pop((process, number))
            if left > 1:
                self._given[process, number] = given, left - 1
            if given != encoded:
                self._note(given, encoded)
        return passed_on

    def _note(self, given: bytes, other: bytes) -> None:
        (was,), _ = records.decode_down(given)
        (now,), _ = records.decode_down(other)
        if isinstance(was, records.Clock) and isinstance(now, records.Clock):
            off_ns = abs(was.now_ns - now.now_ns)
        elif isinstance(was, records.ElapsedNs) and isinstance(now, records.ElapsedNs) and was.ready and now.ready:
            off_ns = abs(was.elapsed_ns - now.elapsed_ns)
        else:
            self.differing.states += 1
            return
        self.differing.times += 1
        self.differing.most_ns = max(self.differing.most_ns, off_ns)
