"""How long a round of repeated facts takes, and what the GPU does meanwhile, if it does nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from emu.contract import records
from emu.contract.records import ScopeKind

REPEATED = (1 << 16) - 1
"""Kind of a fact that no record has."""


class Spent(NamedTuple):
    """What a GPU's time went to."""

    compute_ns: int
    host_bound_ns: int
    idle_ns: int


class Rhythm(NamedTuple):
    """Of one round. It begins and ends with a GPU that does nothing and a host that goes on."""

    round_ns: int
    parts: tuple[tuple[int, int], ...]
    """One after the other: which field of ``Spent`` the time counts for, and how much it is."""
    total: Spent

    def spent(self, for_ns: int) -> Spent:
        """In so much time from the beginning of the first round on."""
        rounds, left_ns = divmod(for_ns, self.round_ns)
        spent = [rounds * part_ns for part_ns in self.total]
        for account, part_ns in self.parts:
            spent[account] += min(part_ns, left_ns)
            left_ns -= part_ns
            if left_ns <= 0:
                break
        return Spent(*spent)


class RepeatedFact(NamedTuple):
    """Segments of one stream, and waits for it, so many times."""

    kind: int
    site: int
    nbytes: int
    host_ns: int
    """Before the first of ``facts``, as that says."""
    facts: tuple[Any, ...]
    """Of one round."""
    times: int
    rhythm: Rhythm

    @property
    def stream(self) -> int:
        """On which all happens."""
        stream: int = self.facts[0].stream
        return stream

    @property
    def stands_for(self) -> int:
        """How many facts."""
        return len(self.facts) * self.times


class Repetition(NamedTuple):
    """What a GPU is at whose host executes a RepeatedFact."""

    rhythm: Rhythm
    begins_ns: int
    """Its first round, with the host time before it."""

    def spent(self, since_ns: int, until_ns: int) -> Spent:
        """Between two instants of it."""
        before, after = (self.rhythm.spent(at_ns - self.begins_ns) for at_ns in (since_ns, until_ns))
        return Spent(*(late - early for early, late in zip(before, after, strict=True)))


def expanded(facts: Sequence[Any]) -> Sequence[Any]:
    """One by one."""
    if all(fact.kind != REPEATED for fact in facts):
        return facts
    return [one for fact in facts for one in (fact.facts * fact.times if fact.kind == REPEATED else (fact,))]


def rhythm_of(facts: Sequence[Any]) -> Rhythm | None:
    """Of rounds of these segments and waits for their stream. None if work would be queued or left at the end, if a
    round takes no time, or if a fact is of another kind.
    """
    now_ns = busy_until_ns = done_ns = 0
    parts: list[tuple[int, int]] = []
    stream = facts[0].stream if facts[0].kind in (records.SEGMENT, records.HOST_WAIT) else None

    def passes(until_ns: int, without_work: int) -> None:
        computes_ns = max(min(busy_until_ns, until_ns) - now_ns, 0)
        parts.append((0, computes_ns))
        parts.append((without_work, until_ns - now_ns - computes_ns))

    for fact in facts:
        passes(now_ns + fact.host_ns, 1)
        now_ns += fact.host_ns
        if fact.kind == records.SEGMENT and fact.stream == stream and done_ns <= now_ns:
            busy_until_ns = now_ns + fact.solo_ns
            done_ns = now_ns + max(fact.solo_ns, fact.tail_ns)
        elif fact.kind == records.HOST_WAIT and fact.scope == ScopeKind.STREAM and fact.stream == stream:
            if done_ns > now_ns:
                passes(done_ns, 2)
                now_ns = done_ns
        else:
            return None
    if done_ns > now_ns or not now_ns:
        return None
    total = Spent(*(sum(part_ns for account, part_ns in parts if account == which) for which in range(3)))
    return Rhythm(now_ns, tuple(part for part in parts if part[1]), total)
