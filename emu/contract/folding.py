"""Folded jobs: which ranks have a process, which of them stands for each other rank, and what that rank's calls name.

A *mesh* gives each rank coordinates. Ranks that differ in folded axes only do the same work, so they have one *role*.
A role's *representative* has a process, and plays the role's *mirrored* ranks as well. Ranks that are *apart* have
a process each and are nobody's representative.

The *image* of a communicator of the representative is the one that a mirrored rank has in its place: on folded axes
along which all members have the representative's coordinate, they have the mirrored rank's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any


class CannotFold(Exception):
    """A call has no image under this mesh. The message says why, for a user who knows the script's groups."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a mesh."""

    name: str
    size: int
    folded: bool


@dataclass(frozen=True)
class Mesh:
    """World ranks as points of a grid. The first axis is the slowest one: neighbours in the last axis are neighbouring
    ranks.
    """

    axes: tuple[Axis, ...]

    @property
    def world_size(self) -> int:
        return prod(axis.size for axis in self.axes)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """By axis: how far apart in rank two neighbours are."""
        return tuple(prod(axis.size for axis in self.axes[at + 1 :]) for at in range(len(self.axes)))

    def coordinate(self, rank: int, axis: int) -> int:
        return rank // self.strides[axis] % self.axes[axis].size

    def role(self, rank: int) -> int:
        """The rank's role, named by the first rank that has it."""
        return sum(self.coordinate(rank, at) * self.strides[at] for at in self._axes(folded=False))

    def role_name(self, rank: int) -> str:
        """``pp 3, tp 0``; "" if all axes are folded."""
        at = self._axes(folded=False)
        return ", ".join(f"{self.axes[axis].name} {self.coordinate(rank, axis)}" for axis in at)

    def _axes(self, folded: bool) -> list[int]:
        return [at for at, axis in enumerate(self.axes) if axis.folded == folded]

    def constant_axes(self, members: Collection[int]) -> list[int]:
        """Folded axes along which the members of a communicator have one coordinate. Raises CannotFold if they have
        some coordinates of a folded axis, but not all.
        """
        constant = []
        for at in self._axes(folded=True):
            axis, seen = self.axes[at], {self.coordinate(rank, at) for rank in members}
            if axis.size == 1 or len(seen) == axis.size:
                continue
            if len(seen) > 1:
                raise CannotFold(
                    f"a communicator has {len(seen)} of the {axis.size} coordinates of the folded axis {axis.name}"
                )
            constant.append(at)
        return constant

    def shift(self, axes: Sequence[int], rank: int, to: int) -> int:
        """By how much a rank's number grows when its coordinates on these axes change from `rank`'s to `to`'s."""
        return sum((self.coordinate(to, at) - self.coordinate(rank, at)) * self.strides[at] for at in axes)

    def moved(self, peer: int, rank: int, to: int) -> int:
        """Where `to` finds the rank that is to it what `peer` is to `rank`. Folded axes are rings."""
        for at in self._axes(folded=True):
            here, size = self.coordinate(peer, at), self.axes[at].size
            there = (here + self.coordinate(to, at) - self.coordinate(rank, at)) % size
            peer += (there - here) * self.strides[at]
        return peer


@dataclass(frozen=True)
class Folding:
    """A mesh and the ranks that have processes of their own."""

    mesh: Mesh
    apart: frozenset[int] = frozenset()
    witnesses: frozenset[int] = frozenset()
    """Those that are apart in order to be compared with the representative of their role."""
    similar: bool = False
    """Ranks of a role need only make the same calls: the work between them may differ, and is played as the
    representative's."""

    @cached_property
    def _representatives(self) -> Mapping[int, int]:
        """By role. A role whose ranks are all apart has none."""
        found: dict[int, int] = {}
        for rank in range(self.mesh.world_size):
            if rank not in self.apart:
                found.setdefault(self.mesh.role(rank), rank)
        return found

    @cached_property
    def live(self) -> tuple[int, ...]:
        """Ranks that have processes, in order."""
        return tuple(sorted({*self.apart, *self._representatives.values()}))

    @cached_property
    def mirrored(self) -> Mapping[int, tuple[int, ...]]:
        """By rank that has a process: the others that it plays, in order. Empty for ranks that are apart."""
        found: dict[int, list[int]] = {rank: [] for rank in self.live}
        for rank in range(self.mesh.world_size):
            if rank not in found:
                found[self.representative(rank)].append(rank)
        return {rank: tuple(others) for rank, others in found.items()}

    def representative(self, rank: int) -> int:
        """The rank whose process does this rank's work: its own number if it has one itself."""
        return rank if rank in self.apart else self._representatives[self.mesh.role(rank)]

    def witnessed(self, rank: int) -> int | None:
        """The representative of the role of a rank that is apart; None if all its ranks are apart."""
        return self._representatives.get(self.mesh.role(rank))

    def image(self, members: tuple[int, ...], rank: int, to: int) -> tuple[int, ...]:
        """The members of the communicator that `to` has in the place of this one of `rank`, in the same order. Raises
        CannotFold if there is none.
        """
        shift = self.mesh.shift(self.mesh.constant_axes(members), rank, to)
        image = tuple(member + shift for member in members) if shift else members
        if to not in image:
            raise CannotFold("the members of a communicator are no grid along the folded axes")
        return image

    def to_json(self) -> dict[str, Any]:
        return {
            "axes": [[axis.name, axis.size, axis.folded] for axis in self.mesh.axes],
            "apart": sorted(self.apart),
            "witnesses": sorted(self.witnesses),
            "similar": self.similar,
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Folding:
        axes = tuple(Axis(str(name), int(size), bool(folded)) for name, size, folded in told["axes"])
        apart, witnesses = (frozenset(map(int, told[ranks])) for ranks in ("apart", "witnesses"))
        return cls(Mesh(axes), apart, witnesses, bool(told["similar"]))
