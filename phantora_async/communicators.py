"""NCCL communicators: who they are made of, and which calls of their members belong together.

All of this happens when facts arrive, in real time: it decides what virtual time has to simulate, not when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b

from emu import records
from emu.records import NcclKind
from phantora_async.failures import Deadlock, Mismatch, ProtocolError, Side
from phantora_async.virtual_time.facts import DTYPE_NAMES, DTYPE_NBYTES, PAIRWISE, Comm, Gathering, Meeting

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


def _side(meeting: Meeting) -> Side:
    return Side(meeting.describe(), tuple(meeting.joined), tuple(meeting.sites))


def _half(pair: Meeting, rank: int) -> str:
    """What one of the two does: ``send #0 of 8 f32 to rank 1``."""
    what = f"#{pair.seq} of {pair.count} {DTYPE_NAMES[pair.dtype]}"
    sender, receiver = pair.ranks
    return f"send {what} to rank {receiver}" if rank == sender else f"recv {what} from rank {sender}"


class _Joining:
    """A communicator, or all the parts of a split, that not all members have asked for."""

    __slots__ = ("asked", "gathering")

    def __init__(self, gathering: Gathering) -> None:
        self.gathering = gathering
        self.asked: list[tuple[int, records.CommInit | records.CommSplit]] = []

    def add(self, rank: int, ask: records.CommInit | records.CommSplit) -> None:
        self.asked.append((rank, ask))
        self.gathering.joined.append(rank)
        self.gathering.sites.append(ask.site)


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
        self._open: dict[tuple[int, ...], Meeting] = {}
        self._called: dict[tuple[int, int], int] = {}
        """(rank, communicator) -> collectives called"""
        self._left: set[int] = set()
        self._made: Counter[str] = Counter()

    # -- making communicators ----------------------------------------------------------------------------------------

    def init(self, rank: int, ask: records.CommInit) -> tuple[Gathering, Answers]:
        """A member asks for a communicator; everybody is answered when the last has."""
        unique = ask.payload[:128]
        if len(unique) != 128 or not 0 <= ask.rank < ask.nranks:
            raise ProtocolError(rank, f"COMM_INIT as rank {ask.rank} of {ask.nranks}, {len(unique)} bytes of unique id")
        joining = self._inits.get(unique)
        if joining is None:
            label = f"a communicator of {ask.nranks} ranks"
            joining = self._inits[unique] = _Joining(Gathering(label, ask.nranks))
        for other, theirs in joining.asked:
            assert isinstance(theirs, records.CommInit)
            if theirs.rank == ask.rank or other == rank:
                raise Mismatch(
                    f"ranks {other} and {rank} both joined {joining.gathering.label} as its rank {ask.rank}",
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
            return joining.gathering, []
        del self._inits[unique]
        generation = self._generations[unique] = self._generations.get(unique, 0) + 1
        members = sorted(((a.rank, r, a) for r, a in joining.asked if isinstance(a, records.CommInit)))
        comm = self._register(
            _hash("init", unique, generation), [r for _, r, _ in members], [a.device for _, _, a in members]
        )
        return joining.gathering, [(r, records.Comm.encode(a.qid, comm.id, a.rank, a.nranks)) for _, r, a in members]

    def split(self, rank: int, ask: records.CommSplit) -> tuple[Gathering, Answers]:
        """A member of ``parent`` asks for its part; everybody is answered when all members of the parent have."""
        parent = self.of(rank, ask.parent)
        joining = self._splits.get((parent.id, ask.seq))
        if joining is None:
            gathering = Gathering(f"split #{ask.seq} of {parent.label}", len(parent.members))
            joining = self._splits[parent.id, ask.seq] = _Joining(gathering)
        if rank in joining.gathering.joined:
            raise ProtocolError(rank, f"COMM_SPLIT number {ask.seq} of {parent.label} twice")
        joining.add(rank, ask)
        if len(joining.asked) < len(parent.members):
            return joining.gathering, []
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
        return joining.gathering, answers

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

    def join(self, rank: int, op: records.NcclOp, site: int = 0) -> Meeting:
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
            meeting = self._open.get(key)
            if meeting is None:
                meeting = self._open[key] = Meeting(comm, op.seq, NcclKind.SEND, op.dtype, 0, op.count, -1, ranks)
            elif meeting.nbytes != op.count * DTYPE_NBYTES[op.dtype]:
                mine = Meeting(comm, op.seq, NcclKind.SEND, op.dtype, 0, op.count, -1, ranks)
                raise Mismatch(
                    f"send and receive of different sizes on the {comm.label}: {mine.nbytes} bytes by rank {rank}, "
                    f"{meeting.nbytes} bytes by {named(meeting.joined)}",
                    sides=(
                        Side(_half(meeting, meeting.joined[0]), tuple(meeting.joined), tuple(meeting.sites)),
                        Side(_half(mine, rank), (rank,), (site,)),
                    ),
                )
        else:
            key = (comm.id, op.seq)
            meeting = self._open.get(key)
            if meeting is None:
                if op.op not in NcclKind._value2member_map_:
                    raise ProtocolError(rank, f"NCCL_OP {op.op}")
                meeting = Meeting(comm, op.seq, op.op, op.dtype, op.redop, op.count, op.peer, comm.members)
                self._open[key] = meeting
            else:
                self._compare(rank, op, site, meeting)
            if self._called.get((rank, comm.id), 0) != op.seq:
                raise ProtocolError(rank, f"its next call is not {meeting.describe()}")
            self._called[rank, comm.id] = op.seq + 1
        meeting.joined.append(rank)
        meeting.sites.append(site)
        if len(meeting.joined) == len(meeting.ranks):
            del self._open[key]
        elif self._left:
            self._check_deserted(meeting)
        return meeting

    def _compare(self, rank: int, op: records.NcclOp, site: int, meeting: Meeting) -> None:
        theirs = (meeting.op, meeting.dtype, meeting.redop, meeting.count, meeting.root)
        if theirs == (op.op, op.dtype, op.redop, op.count, op.peer):
            return
        if op.op not in NcclKind._value2member_map_:
            raise ProtocolError(rank, f"NCCL_OP {op.op}")
        mine = Meeting(meeting.comm, op.seq, op.op, op.dtype, op.redop, op.count, op.peer, meeting.ranks)
        raise Mismatch(
            f"members of the {meeting.comm.label} called different collectives as their number {op.seq}",
            sides=(_side(meeting), Side(mine.describe(), (rank,), (site,))),
        )

    # -- ranks that end ----------------------------------------------------------------------------------------------

    def leave(self, rank: int) -> None:
        """The rank has ended and will call nothing more. Raises Deadlock if others wait for it."""
        self._left.add(rank)
        for meeting in self._open.values():
            self._check_deserted(meeting)
        for (parent, _), joining in self._splits.items():
            members = self.by_id[parent].place
            if rank in members and rank not in joining.gathering.joined:
                gathering = joining.gathering
                raise Deadlock(
                    f"deadlock: rank {rank} has ended, but {named(gathering.joined)} asked for {gathering.label}",
                    sides=(Side(gathering.label, tuple(gathering.joined), tuple(gathering.sites)),),
                )

    def _check_deserted(self, meeting: Meeting) -> None:
        missing = [rank for rank in meeting.ranks if rank in self._left and rank not in meeting.joined]
        waiting = [rank for rank in meeting.joined if rank not in self._left]
        if missing and waiting:
            raise Deadlock(
                f"deadlock: {named(missing)} ended without calling {meeting.describe()}, "
                f"but {named(waiting)} called it",
                sides=(_side(meeting),),
            )

    def unanswered(self) -> dict[int, Meeting]:
        """Of every rank the oldest of its calls that not all members have made, if there is one."""
        oldest: dict[int, Meeting] = {}
        for meeting in self._open.values():
            for rank in meeting.joined:
                oldest.setdefault(rank, meeting)
        return oldest

    def joining(self) -> list[tuple[Gathering, list[int]]]:
        """Communicators in the making, and who has asked for them."""
        everyone = (*self._inits.values(), *self._splits.values())
        return [(joining.gathering, sorted(joining.gathering.joined)) for joining in everyone]
