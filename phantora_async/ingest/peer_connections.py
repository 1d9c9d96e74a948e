"""The connections of sends and receives: NCCL makes one when a rank first sends to another one on a communicator.

It does so on the host, before the launch (ncclTransportP2pSetup): a group's connections are set up by the distance of
the ranks, a step at a time. In each step the rank tells both peers, and waits until both have told it. After all steps
it does so again, to say that its connections are up. So a host waits for its peers, and for those of its peers.
"""

from __future__ import annotations

from collections.abc import Sequence

from emu.contract.records import NcclKind
from phantora_async.virtual_time.facts import Collective, CommCreation

_Direction = tuple[int, int, int]
"""A communicator, a sender and a receiver."""
Step = list[CommCreation]
"""What a host asks for at once: one connection or two."""


class PeerConnections:
    """Who has asked for which connections."""

    def __init__(self) -> None:
        self._asked: dict[int, set[_Direction]] = {}
        """The directions for which each rank has asked."""
        self._pending: dict[_Direction, tuple[CommCreation, CommCreation]] = {}
        """The connections for which one of the two has asked: their set-up, and the end of it."""

    def steps(self, rank: int, site: int, called: Sequence[Collective]) -> list[Step]:
        """What the rank's host waits for, in order, before it launches these calls."""
        asked = self._asked.setdefault(rank, set())
        steps: dict[tuple[int, int], list[tuple[CommCreation, CommCreation]]] = {}
        for one in called:
            if one.op != NcclKind.SEND or one.callers != one.ranks or rank not in one.ranks:
                continue
            sender, receiver = one.ranks
            direction = one.comm.id, sender, receiver
            if sender == receiver or direction in asked:
                continue
            asked.add(direction)
            distance = one.comm.rank_of[receiver] - one.comm.rank_of[sender]
            made = self._pending.pop(direction, None)
            if made is None:
                made = self._pending[direction] = _connection(one)
            steps.setdefault((one.comm.id, distance % len(one.comm.members)), []).append(made)
            for creation in made:
                creation.joined.append(rank)
                creation.sites.append(site)
        in_order = [steps[step] for step in sorted(steps)]
        return [[made[phase] for made in step] for phase in (0, 1) for step in in_order]

    def restart(self) -> None:
        """Forgets everything, because all ranks start again."""
        self._asked.clear()
        self._pending.clear()

    def begin_again(self, rank: int) -> None:
        """Prepares for another process of the rank, which has communicators of its own."""
        self._asked.pop(rank, None)


def _connection(first: Collective) -> tuple[CommCreation, CommCreation]:
    what = first.describe()
    begin, end = (
        CommCreation(f"{words} for {what}", 2, first.ranks) for words in ("the connection", "the end of connecting")
    )
    return begin, end
