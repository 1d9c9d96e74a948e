"""The roles of a folded run as a rank with a process needs to know them: who plays whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from ..contract.folding import CannotBePlayed, Folding


class Group(NamedTuple):
    """A process group that this rank has made."""

    members: tuple[int, ...]
    """The world ranks, in the group's rank order."""
    number: int
    """The number of groups of the same members that it had made before."""


class FoldedRanks:
    def __init__(self, folding: Folding, simulated: Collection[int] | None = None) -> None:
        """`simulated`: ranks with timelines of their own; None: all have."""
        self.folding = folding
        self._needed = frozenset() if simulated is None else frozenset((*simulated, *folding.live))
        """The ranks whose groups are made, if not all are."""
        self.live = frozenset(folding.live)
        self.rank = -1
        """This process's rank; -1 in the forker."""
        self.store: Any = None
        """The store of the default group: all ranks with processes reach it."""
        self._made: Counter[tuple[int, ...]] = Counter()
        self.making: Group | None = None
        """The group that is being made."""
        self.by_name: dict[str, Group] = {}
        self.explains: Callable[[BaseException], CannotBePlayed | None] = lambda error: None
        """Returns why the script's exception is none of the script's fault, but of folding; None: it is not known to
        be.
        """
        self.stores: list[Any] = []
        """The stores of groups. PyTorch keeps only the C++ half of a store, whose calls end in its Python half."""

    @property
    def world_size(self) -> int:
        return self.folding.mesh.world_size

    def leaves_out(self, members: Sequence[int] | None) -> bool:
        """Tells whether none of a group's members is simulated, so that nobody needs the group. False for what
        `new_group` would refuse.
        """
        if members is None or not self._needed or len(members) == 0 or not self._needed.isdisjoint(members):
            return False
        return len({*members}) == len(members) and min(members) >= 0 and max(members) < self.world_size

    def begin(self, members: tuple[int, ...], name: str) -> Group:
        """Notes that a group is being made from now on."""
        group = self.making = self.by_name[name] = Group(members, self._made[members])
        self._made[members] += 1
        return group

    def begin_part(self, parent: Any, parts: Sequence[Sequence[int]] | None) -> tuple[int, ...]:
        """Notes that parts of a group are being made from now on. Returns the world ranks of this part; none: it is in
        none.
        """
        from torch.distributed import get_process_group_ranks

        everybody = get_process_group_ranks(parent)
        own = next((part for part in parts or () if parent.rank() in part), ())
        members = tuple(everybody[place] for place in own)
        self.begin(members, f"split {len(self.by_name)}")
        return members

    def processes(self, members: tuple[int, ...]) -> int:
        """Returns how many of these ranks have processes."""
        return sum(member in self.live for member in members)

    def stand_in(self, group: Group, place: int) -> tuple[Group, int]:
        """Returns who contributes for the member at this place: the group of a rank with a process, and its place
        there. Raises CannotFold.
        """
        member = group.members[place]
        if member in self.live:
            return group, place
        rank = self.folding.representative(member)
        members = self.folding.image(group.members, member, rank)
        return Group(members, group.number), members.index(rank)

    def place_seen_from(self, group: Group, member: int) -> int:
        """Returns this rank's place, as the rank that plays this member sees it in its own group."""
        rank = self.folding.representative(member)
        members = self.folding.image(group.members, member, rank)
        return members.index(self.folding.mesh.moved(self.rank, member, rank))
