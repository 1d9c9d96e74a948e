"""Makes facts of the waits of ranks for each other where NCCL connects the peers of a group's messages, before the
first message between them.

It does so on the host (ncclTransportP2pSetup): by the distance of the ranks in the communicator, a step at a time. In
each step the rank gives both peers what they need, and waits until both have given theirs. After all steps come as many
again, in which peers tell each other that they are done. So a host waits for its peers, and for those of its peers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from emu.contract import records
from emu.contract.records import EndKind
from phantora_async.virtual_time.facts import Comm, CommCreation, ConnectFact
from phantora_async.virtual_time.timelines import Timelines

_Connection = tuple[int, int, int]
"""A communicator, a sender and a receiver."""


class Connections:
    """The connections that one of two ranks has asked for, and not yet the other one."""

    def __init__(self, timelines: Timelines) -> None:
        self._timelines = timelines
        self._asked: dict[_Connection, tuple[CommCreation, CommCreation]] = {}
        """The two steps that both ranks of a connection join: the one in which they are connected, and the one in which
        they say so.
        """

    def facts(
        self, rank: int, comm: Comm, record: records.Connect, peers: Iterable[records.ConnectPeer]
    ) -> list[ConnectFact]:
        """The acts of the rank's host, step by step. The host time before the record is before the first step."""
        steps: dict[int, list[tuple[CommCreation, CommCreation]]] = {}
        for sender, receiver in _connections(rank, comm, peers):
            own = len(self._timelines.having((sender, receiver)))
            if own == 1 and not self._timelines.exchange(sender, receiver):
                continue  # the other one has no host of its own, and none that connects at the same instant
            distance = (comm.rank_of[receiver] - comm.rank_of[sender]) % len(comm.members)
            steps.setdefault(distance, []).append(self._join(rank, comm, (sender, receiver), own, record.site))
        in_order = [steps[distance] for distance in sorted(steps)]
        joined = [tuple(pair[phase] for pair in step) for phase in (0, 1) for step in in_order] or [()]
        waits = bool(record.waits)
        return [
            ConnectFact(
                record.kind, record.site, 0, 0 if place else record.host_ns, creations, waits, len(joined) - 1 - place
            )
            for place, creations in enumerate(joined)
        ]

    def restart(self) -> None:
        """Forgets everything, because all ranks start again."""
        self._asked.clear()

    def _join(
        self, rank: int, comm: Comm, ranks: tuple[int, int], own: int, site: int
    ) -> tuple[CommCreation, CommCreation]:
        """`own`: how many of the two have timelines of their own, and so ask."""
        sender, receiver = ranks
        connection = comm.id, sender, receiver
        found = self._asked.pop(connection, None)
        if found is None:
            text = f"from rank {sender} to rank {receiver} on the {comm.label}"
            begins, ends = (
                CommCreation(f"{words} {text}", own, ranks) for words in ("the connection", "the end of connecting")
            )
            found = begins, ends
            if own == 2:
                self._asked[connection] = found
        for creation in found:
            creation.joined.append(rank)
            creation.sites.append(site)
        return found


def _connections(rank: int, comm: Comm, peers: Iterable[records.ConnectPeer]) -> Iterator[tuple[int, int]]:
    """Yields the senders and receivers."""
    for one in peers:
        peer = comm.members[one.peer]
        if one.ends & EndKind.SENDS:
            yield rank, peer
        if one.ends & EndKind.RECEIVES:
            yield peer, rank
