"""Decides which ranks share a timeline: ranks to which the same happens at the same instants share that of one of them.

In a folded run the ranks of a role do the same work. What happens to them differs only where the ranks beside them
differ: those that are apart, those whose GPU or host a fault slows. So along each folded axis the coordinates that such
ranks have stand for themselves, and all others are alike. Of these, the smallest one has the timeline.

A communicator of ranks with timelines then stands for those of the ranks that share them: the members' numbers differ
by an *offset*.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from emu.contract.folding import CannotFold, Folding, root_is_alone
from phantora_async.virtual_time.facts import Comm


class _Axis(NamedTuple):
    """A folded axis, or a part of one, along which some coordinates are alike."""

    stride: int
    size: int
    alike: tuple[int, ...]
    """The coordinates that are alike, two at least. The first has the timelines."""
    coordinates: frozenset[int]
    """The values of ``alike`` as a set, for look-ups."""

    def coordinate(self, rank: int) -> int:
        return rank // self.stride % self.size


class Timelines:
    """Finds the rank whose timeline shows what happens to a rank: itself, unless ranks share timelines."""

    def __init__(
        self,
        world_size: int,
        folding: Folding | None = None,
        servers: Sequence[int] = (),
        slowed: Collection[int] = (),
    ) -> None:
        """`folding`: ranks share timelines; None: each has its own. `servers`: the number of GPUs in use on each
        server. `slowed`: the ranks that a fault makes different.
        """
        self.world_size = world_size
        self.slowed = slowed
        self._folding = folding
        self.gpus = [gpu for gpus in servers for gpu in range(gpus)]
        """The number of each rank's GPU on its server."""
        self._axes = () if folding is None else _alike(folding, slowed)
        self._offsets: dict[tuple[int, ...], tuple[int, ...]] = {}

    def gpu_of(self, rank: int) -> int:
        """The number of its GPU on its server; -1: the servers are not known."""
        return self.gpus[rank] if self.gpus else -1

    @property
    def shared(self) -> bool:
        """True if ranks may share a timeline."""
        return self._folding is not None

    def of(self, rank: int) -> int:
        for axis in self._axes:
            here = axis.coordinate(rank)
            if here in axis.coordinates:
                rank += (axis.alike[0] - here) * axis.stride
        return rank

    @cached_property
    def of_each(self) -> Sequence[int]:
        """The result of ``of`` for each rank."""
        return [self.of(rank) for rank in range(self.world_size)]

    @cached_property
    def own(self) -> tuple[int, ...]:
        """The ranks that have timelines of their own, in ascending order."""
        return tuple(rank for rank, own in enumerate(self.of_each) if rank == own)

    @cached_property
    def sharing(self) -> Mapping[int, Sequence[int]]:
        """For each rank with a timeline of its own, all ranks that share it, this one among them, in ascending
        order.
        """
        found: dict[int, list[int]] = {}
        for rank, own in enumerate(self.of_each):
            found.setdefault(own, []).append(rank)
        return found

    def having(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """The ranks among these that have timelines of their own."""
        of_each = self.of_each
        return tuple(rank for rank in ranks if of_each[rank] == rank)

    def exchange(self, rank: int, peer: int) -> bool:
        """Tells whether two ranks share a timeline and send each other what they send: along axes of two coordinates
        the rank that is as far from the peer as the peer is from the rank is the rank itself.
        """
        if self._folding is None or rank == peer or self.of(peer) != self.of(rank):
            return False
        mesh = self._folding.mesh
        apart = [at for at in range(len(mesh.axes)) if mesh.coordinate(rank, at) != mesh.coordinate(peer, at)]
        return all(mesh.axes[at].size == 2 for at in apart)

    def root_is_alone(self, members: Sequence[int], root: int) -> CannotFold:
        """The error to raise where ranks share timelines and the root of a gather or scatter shares that of a
        member.
        """
        assert self._folding is not None, "ranks share timelines"
        return root_is_alone(self._folding.mesh, members, root)

    def pair_offsets(self, comm: Comm, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """The offsets of a send with its receive. Along a part of a folded axis only parts of gathers and scatters are
        sent, which stand for those of other communicators.
        """
        try:
            return self.offsets(ranks)
        except CannotFold:
            return comm.offsets

    def offsets(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """The offsets of groups that do the same as these ranks at the same instants: by how much each member's number
        is larger. The first is 0, for the ranks themselves. They are ranks with timelines, along the axes on which they
        do not differ. Raises CannotFold if they have some coordinates of a folded axis, but not all.
        """
        if self._folding is None:
            return (0,)
        known = self._offsets.get(ranks)
        if known is None:
            self._folding.mesh.constant_axes(ranks)
            known = (0,)
            for axis in self._axes:
                if {axis.coordinate(rank) for rank in ranks} == {axis.alike[0]}:
                    steps = [(here - axis.alike[0]) * axis.stride for here in axis.alike]
                    known = tuple(offset + step for offset in known for step in steps)
            self._offsets[ranks] = known
        return known


def _alike(folding: Folding, slowed: Collection[int]) -> tuple[_Axis, ...]:
    axes = []
    for at, axis in enumerate(folding.mesh.axes):
        if not axis.folded:
            continue
        own = {folding.mesh.coordinate(rank, at) for rank in (*folding.apart, *slowed)}
        parts: dict[int, list[int]] = {}
        for here, first in enumerate(axis.first_alike):
            if here not in own:
                parts.setdefault(first, []).append(here)
        axes += [
            _Axis(folding.mesh.strides[at], axis.size, tuple(alike), frozenset(alike))
            for alike in parts.values()
            if len(alike) > 1
        ]
    return tuple(axes)
