"""NCCL communicators: who they are made of, and which calls of their members belong together.

All of this happens when facts arrive, in real time: it decides what virtual time has to simulate, not when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.failures import Deadlock, Mismatch, ProtocolError, Side
from phantora_async.virtual_time.facts import DTYPE_NAMES, DTYPE_NBYTES, PAIRWISE, Collective, Comm, CommCreation

NO_COLOR = -1
Answers = list[tuple[int, bytes]]
"""(rank, encoded record)"""


def compact(ranks: Iterable[int]) -> str:
    """``0-7,16`` for a sorted set of ranks; ``0-56:8`` for equal steps."""
    numbers = sorted(set(ranks))
    if len(numbers) > 2 and numbers[1] - numbers[0] > 1:
        step = numbers[1] - numbers[0]
        if numbers == list(range(numbers[0], numbers[-1] + 1, step)):
            return f"{numbers[0]}-{numbers[-1]}:{step}"
    parts: list[str] = []
    start = 0
    for place, number in enumerate(numbers):
        if place + 1 == len(numbers) or numbers[place + 1] != number + 1:
            parts.append(str(number) if place == start else f"{numbers[start]}-{number}")
            start = place + 1
    return ",".join(parts)


def _hash(*parts: object) -> int:
    """A communicator's number: 63 bits that depend on nothing but what it is made of, never 0."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "little") >> 1 | 1


def named(ranks: Iterable[int]) -> str:
    """``rank 3`` or ``ranks 0-7``"""
    text = compact(ranks)
    return f"rank {text}" if text.isdecimal() else f"ranks {text}"


def _side(collective: Collective) -> Side:
    return Side(collective.describe(), tuple(collective.joined), tuple(collective.sites))


def _half(pair: Collective, rank: int) -> str:
    """What one of the two does: ``send #0 of 8 f32 to rank 1``."""
    what = f"#{pair.seq} of {pair.count} {DTYPE_NAMES[pair.dtype]}"
    sender, receiver = pair.ranks
    return f"send {what} to rank {receiver}" if rank == sender else f"recv {what} from rank {sender}"


class _Joining:
    """A communicator, or all the parts of a split, that not all members have asked for."""

    __slots__ = ("asked", "creation")

    def __init__(self, creation: CommCreation) -> None:
        self.creation = creation
        self.asked: list[tuple[int, records.CommInit | records.CommSplit]] = []

    def add(self, rank: int, ask: records.CommInit | records.CommSplit) -> None:
        self.asked.append((rank, ask))
        self.creation.joined.append(rank)
        self.creation.sites.append(ask.site)


def _asking(*asks: tuple[int, records.CommInit]) -> tuple[Side, ...]:
    return tuple(
        Side(f"joins a communicator of {ask.nranks} ranks as its rank {ask.rank}", (rank,), (ask.site,))
        for rank, ask in asks
    )


class Communicators:
    """Registry by id, and the meetings that not all members have joined yet."""

    def __init__(self) -> None:
        self.by_id: dict[int, Comm] = {}
        self._inits: dict[bytes, _Joining] = {}
        self._generations: dict[bytes, int] = {}
        self._splits: dict[tuple[int, int], _Joining] = {}
        self._open: dict[tuple[int, ...], Collective] = {}
        self._called: dict[tuple[int, int], int] = {}
        """(rank, communicator) -> collectives called"""
        self._left: set[int] = set()
        self._made: Counter[str] = Counter()

    # -- making communicators ----------------------------------------------------------------------------------------

    def init(self, rank: int, ask: records.CommInit) -> tuple[CommCreation, Answers]:
        """A member asks for a communicator; everybody is answered when the last has."""
        unique = ask.payload[:128]
        if len(unique) != 128 or not 0 <= ask.rank < ask.nranks:
            raise ProtocolError(rank, f"COMM_INIT as rank {ask.rank} of {ask.nranks}, {len(unique)} bytes of unique id")
        joining = self._inits.get(unique)
        if joining is None:
            label = f"a communicator of {ask.nranks} ranks"
            joining = self._inits[unique] = _Joining(CommCreation(label, ask.nranks))
        for other, theirs in joining.asked:
            assert isinstance(theirs, records.CommInit)
            if theirs.rank == ask.rank or other == rank:
                raise Mismatch(
                    f"ranks {other} and {rank} both joined {joining.creation.label} as its rank {ask.rank}",
                    sides=_asking((other, theirs), (rank, ask)),
                )
            if theirs.nranks != ask.nranks:
                sizes = f"{theirs.nranks} and {ask.nranks}"
                raise Mismatch(
                    f"ranks {other} and {rank} disagree about a communicator's size: {sizes}",
                    sides=_asking((other, theirs), (rank, ask)),
                )
        joining.add(rank, ask)
        if len(joining.asked) < ask.nranks:
            return joining.creation, []
        del self._inits[unique]
        generation = self._generations[unique] = self._generations.get(unique, 0) + 1
        members = sorted(((a.rank, r, a) for r, a in joining.asked if isinstance(a, records.CommInit)))
        comm = self._register(
            _hash("init", unique, generation), [r for _, r, _ in members], [a.device for _, _, a in members]
        )
        return joining.creation, [(r, records.Comm.encode(a.qid, comm.id, a.rank, a.nranks)) for _, r, a in members]

    def split(self, rank: int, ask: records.CommSplit) -> tuple[CommCreation, Answers]:
        """A member of ``parent`` asks for its part; everybody is answered when all members of the parent have."""
        parent = self.of(rank, ask.parent)
        joining = self._splits.get((parent.id, ask.seq))
        if joining is None:
            creation = CommCreation(f"split #{ask.seq} of {parent.label}", len(parent.members))
            joining = self._splits[parent.id, ask.seq] = _Joining(creation)
        if rank in joining.creation.joined:
            raise ProtocolError(rank, f"COMM_SPLIT number {ask.seq} of {parent.label} twice")
        joining.add(rank, ask)
        if len(joining.asked) < len(parent.members):
            return joining.creation, []
        del self._splits[parent.id, ask.seq]
        colors: dict[int, list[tuple[int, int, records.CommSplit]]] = {}
        answers: Answers = []
        for other, theirs in joining.asked:
            assert isinstance(theirs, records.CommSplit)
            if theirs.color == NO_COLOR:
                answers.append((other, records.Comm.encode(theirs.qid, 0, 0, 0)))
            else:
                colors.setdefault(theirs.color, []).append((theirs.key, parent.place[other], theirs))
        for color, part in sorted(colors.items()):
            part.sort(key=lambda member: member[:2])
            places = [place for _, place, _ in part]
            comm = self._register(
                _hash("split", parent.id, ask.seq, color),
                [parent.members[place] for place in places],
                [parent.devices[place] for place in places],
            )
            for place, (_, of_parent, theirs) in enumerate(part):
                answers.append((parent.members[of_parent], records.Comm.encode(theirs.qid, comm.id, place, len(part))))
        return joining.creation, answers

    def _register(self, number: int, members: list[int], devices: list[int]) -> Comm:
        place = {rank: at for at, rank in enumerate(members)}
        label = f"communicator of ranks {compact(members)}"
        # Communicators of the same ranks are made one after the other, so their numbers are the same in every run.
        self._made[label] += 1
        if self._made[label] > 1:
            label += f" (their number {self._made[label]})"
        comm = Comm(number, tuple(members), tuple(devices), place, label)
        self.by_id[number] = comm
        return comm

    def of(self, rank: int, number: int) -> Comm:
        """The communicator of that id, which the rank must be a member of. Raises ProtocolError."""
        comm = self.by_id.get(number)
        if comm is None:
            raise ProtocolError(rank, f"communicator {number:#x} is unknown")
        if rank not in comm.place:
            raise ProtocolError(rank, f"it is no member of the {comm.label}")
        return comm

    # -- matching calls ----------------------------------------------------------------------------------------------

    def join(self, rank: int, op: records.NcclOp, site: int = 0) -> Collective:
        """What the call, made at that site of the rank's, takes part in.

        Raises Mismatch if another member called something else, Deadlock if one has ended without calling.
        """
        comm = self.of(rank, op.comm)
        if not 0 <= op.dtype < len(DTYPE_NBYTES):
            raise ProtocolError(rank, f"NCCL_OP with dtype {op.dtype}")
        if op.op in PAIRWISE:
            if not 0 <= op.peer < len(comm.members):
                raise ProtocolError(rank, f"send or receive with rank {op.peer} of the {comm.label}")
            peer = comm.members[op.peer]
            ranks = (rank, peer) if op.op == NcclKind.SEND else (peer, rank)
            key: tuple[int, ...] = (comm.id, op.seq, *ranks)
            collective = self._open.get(key)
            if collective is None:
                collective = self._open[key] = Collective(comm, op.seq, NcclKind.SEND, op.dtype, 0, op.count, -1, ranks)
            elif collective.nbytes != op.count * DTYPE_NBYTES[op.dtype]:
                mine = Collective(comm, op.seq, NcclKind.SEND, op.dtype, 0, op.count, -1, ranks)
                raise Mismatch(
                    f"send and receive of different sizes on the {comm.label}: {mine.nbytes} bytes by rank {rank}, "
                    f"{collective.nbytes} bytes by {named(collective.joined)}",
                    sides=(
                        Side(
                            _half(collective, collective.joined[0]), tuple(collective.joined), tuple(collective.sites)
                        ),
                        Side(_half(mine, rank), (rank,), (site,)),
                    ),
                )
        else:
            key = (comm.id, op.seq)
            collective = self._open.get(key)
            if collective is None:
                if op.op not in NcclKind._value2member_map_:
                    raise ProtocolError(rank, f"NCCL_OP {op.op}")
                collective = Collective(comm, op.seq, op.op, op.dtype, op.redop, op.count, op.peer, comm.members)
                self._open[key] = collective
            else:
                self._compare(rank, op, site, collective)
            if self._called.get((rank, comm.id), 0) != op.seq:
                raise ProtocolError(rank, f"its next call is not {collective.describe()}")
            self._called[rank, comm.id] = op.seq + 1
        collective.joined.append(rank)
        collective.sites.append(site)
        if len(collective.joined) == len(collective.ranks):
            del self._open[key]
        elif self._left:
            self._check_deserted(collective)
        return collective

    def _compare(self, rank: int, op: records.NcclOp, site: int, collective: Collective) -> None:
        theirs = (collective.op, collective.dtype, collective.redop, collective.count, collective.root)
        if theirs == (op.op, op.dtype, op.redop, op.count, op.peer):
            return
        if op.op not in NcclKind._value2member_map_:
            raise ProtocolError(rank, f"NCCL_OP {op.op}")
        mine = Collective(collective.comm, op.seq, op.op, op.dtype, op.redop, op.count, op.peer, collective.ranks)
        raise Mismatch(
            f"members of the {collective.comm.label} called different collectives as their number {op.seq}",
            sides=(_side(collective), Side(mine.describe(), (rank,), (site,))),
        )

    # -- ranks that end ----------------------------------------------------------------------------------------------

    def leave(self, rank: int) -> None:
        """The rank has ended and will call nothing more. Raises Deadlock if others wait for it."""
        self._left.add(rank)
        for collective in self._open.values():
            self._check_deserted(collective)
        for (parent, _), joining in self._splits.items():
            members = self.by_id[parent].place
            if rank in members and rank not in joining.creation.joined:
                creation = joining.creation
                raise Deadlock(
                    f"deadlock: rank {rank} has ended, but {named(creation.joined)} asked for {creation.label}",
                    sides=(Side(creation.label, tuple(creation.joined), tuple(creation.sites)),),
                )

    def _check_deserted(self, collective: Collective) -> None:
        missing = [rank for rank in collective.ranks if rank in self._left and rank not in collective.joined]
        waiting = [rank for rank in collective.joined if rank not in self._left]
        if missing and waiting:
            raise Deadlock(
                f"deadlock: {named(missing)} ended without calling {collective.describe()}, "
                f"but {named(waiting)} called it",
                sides=(_side(collective),),
            )

    def unanswered(self) -> dict[int, Collective]:
        """Of every rank the oldest of its calls that not all members have made, if there is one."""
        oldest: dict[int, Collective] = {}
        for collective in self._open.values():
            for rank in collective.joined:
                oldest.setdefault(rank, collective)
        return oldest

    def joining(self) -> list[tuple[CommCreation, list[int]]]:
        """Communicators in the making, and who has asked for them."""
        everyone = (*self._inits.values(), *self._splits.values())
        return [(joining.creation, sorted(joining.creation.joined)) for joining in everyone]
