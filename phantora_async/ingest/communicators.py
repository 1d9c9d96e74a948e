"""Tracks NCCL communicators: which ranks make up each, from ncclCommInitRank and ncclCommSplit.

This happens when the questions arrive, in real time, and depends on nothing but the members' calls. In a folded run the
questions say who the members are (`stated_members`): ranks without a process are played by others, whose ids differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from emu.contract import records
from emu.contract.folding import CannotFold
from netsim.collectives import CommunicatorMemory
from phantora_async.errors import Deadlock, Mismatch, NotFoldable, ProtocolError, Side
from phantora_async.virtual_time import Timelines
from phantora_async.virtual_time.facts import Comm, CommCreation
from phantora_async.wording import compact, named

NO_COLOR = -1
"""The value of NCCL_SPLIT_NOCOLOR."""
MOST_COLOR = 1 << 31
"""The bound of colors: all are smaller."""
UNIQUE_ID_NBYTES = 128
"""The size of ncclUniqueId in bytes."""
Answers = list[tuple[int, bytes]]
"""Answers as (rank, encoded record)."""
MemoryOf = Callable[[Comm, int], CommunicatorMemory]
"""Says what NCCL takes of the GPU of a member of a communicator, by its world rank."""


class Created(NamedTuple):
    """The result of a member's question for a communicator."""

    creation: CommCreation
    answers: Answers
    """The answers for all members, once the last one has asked; empty before."""


class _Init(NamedTuple):
    rank: int
    ask: records.CommInit


class _Split(NamedTuple):
    rank: int
    ask: records.CommSplit


class StatedMembers(NamedTuple):
    """The members that a question of a folded run names."""

    each_its_own: bool
    """For a split: true if each member names its own part; false if all members name the same part."""
    members: tuple[int, ...]
    """The world ranks of the members, in the rank order of the communicator; for a split: of the part."""
    group: tuple[int, ...] = ()
    """The process group of which the members are two that send each other messages; (): the members are all of it."""


class _PendingInit:
    """A communicator for which not all members have asked."""

    __slots__ = ("asked", "by_place", "by_rank", "creation")

    def __init__(self, nranks: int, callers: int, members: tuple[int, ...]) -> None:
        self.creation = CommCreation(f"a communicator of {nranks} ranks", callers, members)
        self.asked: list[_Init] = []
        self.by_place: dict[int, int] = {}
        """The index in ``asked`` of the member that claims each place."""
        self.by_rank: dict[int, int] = {}

    def add(self, rank: int, ask: records.CommInit) -> None:
        self.by_place[ask.rank] = self.by_rank[rank] = len(self.asked)
        self.asked.append(_Init(rank, ask))


class _PendingSplit:
    """A split of ``parent`` for which not all its members have asked."""

    __slots__ = ("asked", "creation", "parent")

    def __init__(self, parent: Comm, seq: int) -> None:
        callers = parent.members if parent.callers is None else parent.callers
        self.creation = CommCreation(f"split #{seq} of {parent.label}", len(callers), parent.members)
        self.parent = parent
        self.asked: list[_Split] = []


_InitKey = bytes | tuple[tuple[int, ...], int]
"""Identifies a communicator that is being made: by its ncclUniqueId; in folded runs by its members, and how many
communicators they have made before.
"""


class _SplitKey(NamedTuple):
    parent: int
    seq: int


class Communicators:
    """All communicators by id, and those that are being created."""

    def __init__(self, timelines: Timelines, memory: MemoryOf | None = None) -> None:
        """Only members with timelines of their own ask for a communicator. Their questions say who the other members
        are. `memory`: what NCCL takes of a member's GPU; None: nothing.
        """
        self._timelines = timelines
        self._memory = memory
        self.by_id: dict[int, Comm] = {}
        self._inits: dict[_InitKey, _PendingInit] = {}
        self._generations: Counter[bytes] = Counter()
        """The number of communicators that were made with a ncclUniqueId."""
        self._splits: dict[_SplitKey, _PendingSplit] = {}
        self._same_members: Counter[str] = Counter()
        """The number of communicators with the same label."""
        self._of_members: dict[tuple[int, ...], list[Comm]] = {}
        """The communicators by their members, in the order of their creation."""
        self._number: dict[int, int] = {}
        """The number of communicators that the same members had made before, by id."""
        self._asked: Counter[tuple[int, tuple[int, ...]]] = Counter()
        """The number of communicators of these members for which the rank has asked, in folded runs."""

    def init(self, rank: int, ask: records.CommInit) -> Created:
        """Handles a member's question for a communicator. Raises Mismatch if it contradicts another member."""
        unique = ask.payload[:UNIQUE_ID_NBYTES]
        if len(unique) != UNIQUE_ID_NBYTES or not 0 <= ask.rank < ask.nranks:
            raise ProtocolError(rank, f"COMM_INIT as rank {ask.rank} of {ask.nranks}, {len(unique)} bytes of unique id")
        stated = stated_members(ask)
        key: _InitKey = unique
        if stated is not None:
            key = stated.members, self._asked[rank, stated.members]
            self._asked[rank, stated.members] += 1
        pending = self._inits.get(key)
        if pending is None:
            callers = self._timelines.having(stated.members) if stated is not None else range(ask.nranks)
            pending = self._inits[key] = _PendingInit(
                ask.nranks, len(callers), stated.members if stated is not None else ()
            )
        _check_agreement(pending, rank, ask)
        # In folded runs the rest of the payload has all members, which each member would keep.
        pending.add(rank, ask._replace(payload=unique))
        _join(pending.creation, rank, ask.site)
        if len(pending.asked) < pending.creation.size:
            return Created(pending.creation, [])
        del self._inits[key]
        members = sorted(pending.asked, key=lambda member: member.ask.rank)
        unique = members[0].ask.payload[:UNIQUE_ID_NBYTES]
        self._generations[unique] += 1
        comm = self._register(
            _id("init", unique, self._generations[unique]),
            {member.rank: member.ask.device for member in members},
            stated,
        )
        answers = [
            (member.rank, self._answer(member.ask.qid, comm, member.rank, member.ask.rank)) for member in members
        ]
        return Created(pending.creation, answers)

    def split(self, rank: int, ask: records.CommSplit) -> Created:
        """Handles the question of a member of the parent for its part of a split."""
        parent = self.of(rank, ask.parent)
        key = _SplitKey(parent.id, ask.seq)
        pending = self._splits.get(key)
        if pending is None:
            pending = self._splits[key] = _PendingSplit(parent, ask.seq)
        if rank in pending.creation.joined:
            raise ProtocolError(rank, f"COMM_SPLIT number {ask.seq} of {parent.label} twice")
        pending.asked.append(_Split(rank, ask))
        _join(pending.creation, rank, ask.site)
        if len(pending.asked) < pending.creation.size:
            return Created(pending.creation, [])
        del self._splits[key]
        return Created(pending.creation, self._divide(pending, ask.seq))

    def _divide(self, pending: _PendingSplit, seq: int) -> Answers:
        """Makes one communicator a color. Members are ordered by key, then by their rank in the parent."""
        parent = pending.parent
        parts: dict[int, list[_Split]] = {}
        answers: Answers = []
        colors = _colors_of_parts(pending.asked)
        for member in pending.asked:
            stated = stated_members(member.ask)
            color = member.ask.color
            if stated is not None:
                color = colors[stated.members] if member.rank in stated.members else NO_COLOR
            if color == NO_COLOR:
                answers.append((member.rank, _encoded(member.ask.qid, 0, 0, 0, CommunicatorMemory())))
            else:
                parts.setdefault(color, []).append(member)
        for color, part in sorted(parts.items()):
            part.sort(key=lambda member: (*_stated_order(member), member.ask.key, parent.rank_of[member.rank]))
            comm = self._register(
                _id("split", parent.id, seq, color),
                {member.rank: parent.devices[parent.rank_of[member.rank]] for member in part},
                stated_members(part[0].ask),
            )
            for member in part:
                place = comm.rank_of[member.rank]
                answers.append((member.rank, self._answer(member.ask.qid, comm, member.rank, place)))
        return answers

    def _answer(self, qid: int, comm: Comm, rank: int, place: int) -> bytes:
        memory = self._memory(comm, rank) if self._memory is not None else CommunicatorMemory()
        return _encoded(qid, comm.id, place, len(comm.members), memory)

    def _register(self, number: int, devices: dict[int, int], stated: StatedMembers | None) -> Comm:
        """Makes the communicator known. `devices`: those of the members that have asked, in the rank order of the
        communicator.
        """
        members = list(devices)
        callers: tuple[int, ...] | None = None
        offsets: tuple[int, ...] = (0,)
        if self._timelines.shared:
            if stated is None:
                raise NotFoldable("a communicator's members are not known: --replicas each may find them")
            members = list(stated.members)
            callers = self._timelines.having(members)
            try:
                offsets = self._timelines.offsets(stated.members)
            except CannotFold as error:
                failure = NotFoldable(f"{error}: ranks that share a timeline differ in who is beside them")
                failure.needs_each = bool(stated.group)
                raise failure from None
            devices = {rank: self._device(rank, devices) for rank in members}
        place = {rank: at for at, rank in enumerate(members)}
        label = f"communicator of ranks {compact(members)}"
        # Communicators of the same ranks are created one after the other, so this count is the same in every run.
        self._same_members[label] += 1
        if self._same_members[label] > 1:
            label += f" (their number {self._same_members[label]})"
        group = () if stated is None else stated.group
        comm = Comm(number, tuple(members), tuple(devices.values()), place, label, callers, offsets, group)
        self.by_id[number] = comm
        same = self._of_members.setdefault(comm.members, [])
        same.append(comm)
        self._number[number] = len(same) - 1
        return comm

    def _device(self, rank: int, devices: dict[int, int]) -> int:
        """The device that the rank uses. A member that uses the GPU of its own number does so wherever its timeline is
        shared.
        """
        own, gpus = self._timelines.of(rank), self._timelines.gpus
        return gpus[rank] if devices[own] == gpus[own] else devices[own]

    def like(self, comm: Comm, members: tuple[int, ...]) -> Comm | None:
        """The communicator of these members that they made when `comm`'s made theirs; None if not all have asked."""
        same, number = self._of_members.get(members, ()), self._number[comm.id]
        return same[number] if number < len(same) else None

    def number_of(self, comm: Comm) -> int:
        """The number of communicators that the same members had made before."""
        return self._number[comm.id]

    def of(self, rank: int, number: int) -> Comm:
        """The communicator with this id, of which the rank must be a member. Raises ProtocolError."""
        comm = self.by_id.get(number)
        if comm is None:
            raise ProtocolError(rank, f"communicator {number:#x} is unknown")
        if rank not in comm.rank_of:
            raise ProtocolError(rank, f"it is not a member of the {comm.label}")
        return comm

    def restart(self) -> None:
        """Drops the questions of members that wait, because all ranks start again."""
        self._inits.clear()
        self._splits.clear()

    def rank_ended(self, rank: int) -> None:
        """Records that the rank has ended and will not ask. Raises Deadlock if others wait in a split for it."""
        for pending in self._splits.values():
            creation = pending.creation
            if rank in pending.parent.rank_of and rank not in creation.joined:
                raise Deadlock(
                    f"deadlock: rank {rank} has ended, but {named(creation.joined)} asked for {creation.label}",
                    sides=(Side(creation.label, tuple(creation.joined), tuple(creation.sites)),),
                )


def stated_members(ask: records.CommInit | records.CommSplit) -> StatedMembers | None:
    """The members that the question names; None if it names none, as in runs that are not folded."""
    if isinstance(ask, records.CommInit):
        ranks = _ranks(ask.payload[UNIQUE_ID_NBYTES:])
        return StatedMembers(True, ranks[: ask.nranks], ranks[ask.nranks :]) if len(ranks) >= ask.nranks else None
    if not ask.payload:
        return None
    each_its_own, count = _ranks(ask.payload[:8])
    return StatedMembers(bool(each_its_own), _ranks(ask.payload[8:])[:count])


@lru_cache(maxsize=256)
def _ranks(stated: bytes) -> tuple[int, ...]:
    """The ranks that the bytes list; cached, so that all members of a communicator share one object."""
    return tuple(memoryview(stated[: len(stated) // 4 * 4]).cast("I"))


def _encoded(qid: int, comm: int, place: int, nranks: int, memory: CommunicatorMemory) -> bytes:
    return records.Comm.encode(
        qid,
        comm,
        place,
        nranks,
        memory.made,
        memory.ring,
        memory.tree,
        memory.multicast,
        memory.send,
        memory.receive,
        memory.net_send,
        memory.net_receive,
        memory.tree_sizes,
        memory.multicast_sizes,
        memory.gather_sizes,
        memory.first_near,
        memory.near,
    )


def _colors_of_parts(asked: Sequence[_Split]) -> dict[tuple[int, ...], int]:
    """The color of each part for which its members with processes ask, by members. Ranks without a process do not know
    theirs.
    """
    colors: dict[tuple[int, ...], int] = {}
    for member in asked:
        stated = stated_members(member.ask)
        if stated is not None and member.rank in stated.members:
            known = colors.get(stated.members, NO_COLOR)
            colors[stated.members] = max(known, member.ask.color)
    unknown = sorted(members for members, color in colors.items() if color == NO_COLOR)
    return colors | {members: MOST_COLOR + number for number, members in enumerate(unknown)}


def _stated_order(member: _Split) -> tuple[int, ...]:
    stated = stated_members(member.ask)
    return () if stated is None else (stated.members.index(member.rank),)


def _join(creation: CommCreation, rank: int, site: int) -> None:
    creation.joined.append(rank)
    creation.sites.append(site)


def _check_agreement(pending: _PendingInit, rank: int, ask: records.CommInit) -> None:
    """Raises Mismatch if a member that has asked before claims the same rank or another size."""
    if not pending.asked:
        return
    # Those before agree with each other: about the size it is enough to ask the first.
    found = {0, pending.by_place.get(ask.rank, 0), pending.by_rank.get(rank, 0)}
    for other, theirs in (pending.asked[number] for number in sorted(found)):
        if theirs.rank == ask.rank or other == rank:
            raise Mismatch(
                f"ranks {other} and {rank} both joined {pending.creation.label} as its rank {ask.rank}",
                sides=(_side(other, theirs), _side(rank, ask)),
            )
        if theirs.nranks != ask.nranks:
            raise Mismatch(
                f"ranks {other} and {rank} disagree about a communicator's size: {theirs.nranks} and {ask.nranks}",
                sides=(_side(other, theirs), _side(rank, ask)),
            )


def _side(rank: int, ask: records.CommInit) -> Side:
    return Side(f"joins a communicator of {ask.nranks} ranks as its rank {ask.rank}", (rank,), (ask.site,))


def _id(*parts: object) -> int:
    """A communicator's id: 63 bits that depend only on `parts`, never 0."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "little") >> 1 | 1
