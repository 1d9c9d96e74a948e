"""Finds which collective calls of different ranks are the same collective, and whether these calls agree.

NCCL matches by order: the n-th collective that a rank calls on a communicator is the n-th of every other member. Sends
and receives are matched by their order between the two ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from emu.contract import records
from emu.contract.folding import CannotFold
from emu.contract.records import NcclKind
from phantora_async.errors import Deadlock, Mismatch, NotFoldable, ProtocolError, Side
from phantora_async.ingest.communicators import Communicators
from phantora_async.ingest.differing_lines import DifferingCalls, DifferingLines
from phantora_async.ingest.messages import kind_of, root_of
from phantora_async.virtual_time import Timelines
from phantora_async.virtual_time.facts import DTYPE_NAMES, DTYPE_NBYTES, PAIRWISE, Collective, Comm
from phantora_async.wording import named

_OPS, _PAIRWISE = frozenset(map(int, NcclKind)), frozenset(map(int, PAIRWISE))


_Key = tuple[int, int] | tuple[int, int, int, int]
"""Identifies a collective: its communicator and number; for a send with its receive also sender and receiver."""


class CollectiveMatching:
    """The collectives that some members have called and others have not."""

    def __init__(
        self,
        communicators: Communicators,
        timelines: Timelines,
        line_of: Callable[[int, int], int | None] = lambda rank, site: None,
    ) -> None:
        """`line_of`: see ``DifferingLines``."""
        self._communicators = communicators
        self._timelines = timelines
        self._differing_lines = DifferingLines(line_of)
        self._open: dict[_Key, Collective] = {}
        self._called: dict[tuple[int, int], int] = {}
        """The number of collectives that the rank has called, by rank and communicator, without sends and receives."""
        self._messages: Counter[tuple[int, int, int]] = Counter()
        """The number of parts of gathers and scatters, by communicator, sender and receiver, for ranks that share
        timelines.
        """
        self._dissent: dict[_Key, dict[str, list[tuple[int, int]]]] = {}
        """Calls that do not agree with those of members that called before: ranks with their sites, by call."""
        self._ended: set[int] = set()
        """Ranks that have ended."""
        self._aborted: set[tuple[int, int]] = set()
        """Ranks that have aborted a communicator, and wait for nothing on it any more: by rank and communicator."""

    def join(self, rank: int, op: records.NcclOp, site: int = 0) -> Collective:
        """The collective that the rank's call takes part in; ``site``: where the call was made.

        Raises Mismatch if another member called something else, Deadlock if one has ended without calling.
        """
        comm = self._communicators.of(rank, op.comm)
        if op.op not in _OPS or not 0 <= op.dtype < len(DTYPE_NBYTES):
            raise ProtocolError(rank, f"NCCL_OP {op.op} with dtype {op.dtype}")
        if op.op in _PAIRWISE:
            key, collective = self._pair(rank, comm, op, site)
        else:
            key, collective = self._collective(rank, comm, op, site)
        self._enter(key, collective, rank, site)
        return collective

    def join_message(self, rank: int, op: records.NcclOp, site: int = 0) -> list[tuple[Collective, records.NcclOp]]:
        """Joins a send or receive of a gather or scatter. Returns the collectives, each with the rank's call of it.

        Ranks that share this one's timeline exchange their messages with the root while it does, by kernels of their
        own which take as long: so its kernel takes part in theirs, too. Raises NotFoldable if the root is one of them.
        """
        comm = self._communicators.of(rank, op.comm)
        plain = op._replace(op=kind_of(op.op))
        of = self._timelines.of
        if not self._timelines.shared or not 0 <= op.peer < len(comm.members):
            return [(self.join(rank, plain, site), plain)]
        place = root_of(op.op, comm.rank_of[rank], op.peer)
        assert place is not None, "the caller asks for messages only"
        root = comm.members[place]
        others = [member for member in comm.members if member != root and of(member) in (root, of(root))]
        if others:
            raise NotFoldable.of(self._timelines.root_is_alone(comm.members, root))
        with_root = [comm.members[op.peer]]
        if root != rank:
            with_root = [rank, *(one for one in comm.members if one != rank and of(one) == rank)]
        joined = []
        for other in with_root:
            sends = (root == rank) == (plain.op == NcclKind.SEND)
            ranks = (root, other) if sends else (other, root)
            call = plain
            # The message of a rank for which this one stands has no output here, and it has sent the root no others.
            if root != rank and other != rank:
                call = plain._replace(seq=self._messages[comm.id, *ranks], token=0)
                self._messages[comm.id, *ranks] += 1
            key, collective = self._pair(rank, comm, call, site, ranks)
            self._enter(key, collective, rank, site)
            joined.append((collective, call._replace(seq=plain.seq)))
        return joined

    def join_exchange(self, rank: int, op: records.NcclOp, site: int = 0) -> tuple[Collective, Collective] | None:
        """Joins a send or receive between ranks that share a timeline and exchange what they send; None: it is none.
        Returns the message that moves, and the one whose data it has.

        The peer sends what the rank sends, at the same instant, and receives what it receives. So the message is
        between two ranks of which one calls, and the rank gets what it sends.
        """
        comm = self._communicators.of(rank, op.comm)
        if op.op not in _PAIRWISE or not 0 <= op.peer < len(comm.members):
            return None
        peer = comm.members[op.peer]
        if not self._timelines.exchange(rank, peer):
            return None
        ranks = (rank, peer) if op.op == NcclKind.SEND else (peer, rank)
        offsets = self._timelines.offsets(ranks)
        moves = Collective(comm, op.seq, NcclKind.SEND, op.dtype, 0, op.count, -1, ranks, (rank,), offsets)
        moves.joined.append(rank)
        moves.sites.append(site)
        key, data = self._pair(rank, comm, op, site, (rank, peer))
        data.ranks = (rank, rank)
        self._enter(key, data, rank, site)
        return moves, data

    def _enter(self, key: _Key, collective: Collective, rank: int, site: int) -> None:
        """Records that the rank takes part in the collective. Raises Deadlock."""
        collective.joined.append(rank)
        collective.sites.append(site)
        if len(collective.joined) == len(collective.callers):
            del self._open[key]
            if collective.op not in _PAIRWISE:
                self._differing_lines.called(collective)
        elif self._ended:
            self._check_ended(collective)

    def _pair(
        self, rank: int, comm: Comm, op: records.NcclOp, site: int, message: tuple[int, int] | None = None
    ) -> tuple[_Key, Collective]:
        """Pairs a send with its receive: the two must agree on the size. Raises NotFoldable if one of them shares the
        timeline of another rank: then it has no call of its own. `message`: the sender and receiver of a part of a
        gather or scatter, for which the ranks call that have the timelines of these.
        """
        if not 0 <= op.peer < len(comm.members):
            raise ProtocolError(rank, f"send or receive with rank {op.peer} of the {comm.label}")
        peer = comm.members[op.peer]
        ranks = message or ((rank, peer) if op.op == NcclKind.SEND else (peer, rank))
        key = comm.id, op.seq, *ranks
        collective = self._open.get(key)
        if collective is None:
            offsets = comm.offsets if message else self._offsets(*ranks)
            callers = tuple(map(self._timelines.of, message)) if message else None
            collective = self._open[key] = Collective(
                comm, op.seq, NcclKind.SEND, op.dtype, 0, op.count, -1, ranks, callers, offsets
            )
        elif collective.nbytes != op.count * DTYPE_NBYTES[op.dtype]:
            mine = Collective(comm, op.seq, NcclKind.SEND, op.dtype, 0, op.count, -1, ranks)
            raise Mismatch(
                f"send and receive of different sizes on the {comm.label}: {mine.nbytes} bytes by rank {rank}, "
                f"{collective.nbytes} bytes by {named(collective.joined)}",
                sides=(
                    Side(_half(collective, collective.joined[0]), tuple(collective.joined), tuple(collective.sites)),
                    Side(_half(mine, rank), (rank,), (site,)),
                ),
            )
        return key, collective

    def _offsets(self, sender: int, receiver: int) -> tuple[int, ...]:
        try:
            alike = self._timelines.of(sender) == sender and self._timelines.of(receiver) == receiver
            offsets = self._timelines.offsets((sender, receiver))
        except CannotFold:
            alike = False
        if not alike:
            failure = NotFoldable(
                f"rank {sender} sends to rank {receiver}, along a folded axis: --replicas each simulates both"
            )
            failure.needs_each = True
            raise failure
        return offsets

    def _collective(self, rank: int, comm: Comm, op: records.NcclOp, site: int) -> tuple[_Key, Collective]:
        """Matches a call of all members: they must agree on everything."""
        key = comm.id, op.seq
        collective = self._open.get(key)
        if collective is None:
            collective = Collective(
                comm, op.seq, op.op, op.dtype, op.redop, op.count, op.peer, comm.members, comm.callers, comm.offsets
            )
            self._open[key] = collective
        elif not _agrees(collective, op):
            mine = Collective(comm, op.seq, op.op, op.dtype, op.redop, op.count, op.peer, comm.members)
            self._dissent.setdefault(key, {}).setdefault(mine.describe(), []).append((rank, site))
            raise Mismatch(
                f"members of the {comm.label} called different collectives as their number {op.seq}",
                sides=self.mismatch(),
            )
        member = rank, comm.id
        if self._called.get(member, 0) != op.seq:
            raise ProtocolError(rank, f"its next call is not {collective.describe()}")
        self._called[member] = op.seq + 1
        return key, collective

    def restart(self, ranks: Iterable[int]) -> None:
        """Prepares a restart of these ranks; all processes have ended."""
        self._open.clear()
        self._called.clear()
        self._messages.clear()
        self._ended.difference_update(ranks)
        self._aborted.clear()
        self._dissent.clear()
        self._differing_lines.restart()

    def begin_again(self, rank: int) -> None:
        """Prepares for another process of a rank that has ended, which calls with communicators of its own."""
        self._ended.discard(rank)

    def aborted(self, rank: int, comm: int) -> None:
        """Records that the rank has aborted the communicator with this id, which it may never have used."""
        self._aborted.add((rank, comm))

    def rank_ended(self, rank: int) -> None:
        """Records that the rank has ended and will call nothing more. Raises Deadlock if others wait for it."""
        self._ended.add(rank)
        for collective in self._open.values():
            self._check_ended(collective)

    def _check_ended(self, collective: Collective) -> None:
        missing = [rank for rank in collective.callers if rank in self._ended and rank not in collective.joined]
        gone = self._ended.union(rank for rank, comm in self._aborted if comm == collective.comm.id)
        waiting = [rank for rank in collective.joined if rank not in gone]
        if missing and waiting:
            raise Deadlock(
                f"deadlock: {named(missing)} ended without calling {collective.describe()}, "
                f"but {named(waiting)} called it",
                sides=(_side(collective),),
            )

    def incomplete(self) -> dict[int, Collective]:
        """The oldest collective, for each rank, that it has called and other members have not, if there is one."""
        oldest: dict[int, Collective] = {}
        for collective in self._open.values():
            for rank in collective.joined:
                if (rank, collective.comm.id) not in self._aborted:
                    oldest.setdefault(rank, collective)
        return oldest

    def mismatch(self) -> tuple[Side, ...]:
        """The calls of the first collective on which members disagree, of all members that have called by now; () if
        they agree on all.

        Members call in any order in real time, so the first two to disagree do not show which one differs from all.
        """
        for key, dissent in self._dissent.items():
            others = (Side(call, *zip(*ranks, strict=True)) for call, ranks in dissent.items())
            return (_side(self._open[key]), *others)
        return ()

    def differing_lines(self) -> list[DifferingCalls]:
        """For each communicator with a collective that members have not called yet: the calls that its members made
        last in different lines, if they made any.
        """
        waiting = {collective.comm.id: None for collective in self._open.values() if collective.op not in _PAIRWISE}
        return [calls for calls in map(self._differing_lines.of, waiting) if calls is not None]

    def disagreeing(self) -> set[int]:
        """The members that have not called the first collective on which others disagree; empty if all agree."""
        for key in self._dissent:
            called = {rank for side in self.mismatch() for rank in side.ranks}
            return {rank for rank in self._open[key].callers if rank not in called and rank not in self._ended}
        return set()


def _agrees(collective: Collective, op: records.NcclOp) -> bool:
    return (
        collective.op == op.op
        and collective.root == op.peer
        and collective.count == op.count
        and collective.dtype == op.dtype
        and collective.redop == op.redop
    )


def _side(collective: Collective) -> Side:
    return Side(collective.describe(), tuple(collective.joined), tuple(collective.sites))


def _half(pair: Collective, rank: int) -> str:
    """Describes the rank's half of the pair: ``send #0 of 8 f32 to rank 1``."""
    what = f"#{pair.seq} of {pair.count} {DTYPE_NAMES[pair.dtype]}"
    sender, receiver = pair.ranks
    return f"send {what} to rank {receiver}" if rank == sender else f"recv {what} from rank {sender}"
