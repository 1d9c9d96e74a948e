"""Folded jobs: which ranks have a process, which of them stands for each other rank, and what that rank's calls name.

A *mesh* gives each rank coordinates. Ranks that differ in folded axes only do the same work, so they have one *role*.
A folded axis can have *parts*, such as the coordinates whose shards have one size. Ranks of two parts differ in role.
A role's *representative* has a process, and plays the role's *mirrored* ranks as well. Ranks that are *apart* have
a process each and are nobody's representative.

The *image* of a communicator of the representative is the one that a mirrored rank has in its place: on folded axes
along which all members have the representative's coordinate, they have the mirrored rank's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod
from typing import Any


class CannotFold(Exception):
    """A call has no image under this mesh. The message says why, for a user who knows the script's groups."""


class NeedsParts(SystemExit):
    """Raised in a rank: an axis of the mesh has to have parts. Scripts that catch exceptions do not catch it."""

    CODE = 80
    """The rank's exit code, and the run's."""
    _FOLD = "--fold "

    def __init__(self, reason: str, mesh: Mesh) -> None:
        super().__init__(self.CODE)
        self.words = f"{reason}: {self._FOLD}{mesh}"

    @classmethod
    def told(cls, words: str) -> tuple[str, str]:
        """The reason, and the mesh as `--fold` takes it; both empty if these are not such words."""
        reason, _, mesh = words.rpartition(f": {cls._FOLD}")
        return (reason, mesh) if reason else ("", "")


@dataclass(frozen=True)
class Axis:
    """One axis of a mesh."""

    name: str
    size: int
    folded: bool
    parts: tuple[int, ...] = ()
    """Of a folded axis: how many coordinates each part has, in order. Empty: all are alike."""

    def __str__(self) -> str:
        """``dp*=2048``, ``dp*=1024+1024``, ``tp=8``."""
        return f"{self.name}{'*' * self.folded}={'+'.join(map(str, self.parts)) or self.size}"

    @cached_property
    def first_alike(self) -> Sequence[int]:
        """By coordinate: the first one of its part."""
        if not self.folded:
            return range(self.size)
        starts = (0, *accumulate(self.parts)) if self.parts else (0, self.size)
        return [first for first, end in pairwise(starts) for _ in range(first, end)]


@dataclass(frozen=True)
class Mesh:
    """World ranks as points of a grid. The first axis is the slowest one: neighbours in the last axis are neighbouring
    ranks.
    """

    axes: tuple[Axis, ...]

    def __str__(self) -> str:
        """As `--fold` takes it."""
        return ",".join(map(str, self.axes))

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
        return sum(axis.first_alike[self.coordinate(rank, at)] * self.strides[at] for at, axis in enumerate(self.axes))

    def role_name(self, rank: int) -> str:
        """``pp 3, tp 0``; "" if all axes are folded, and none has parts: of these ``dp 10-12``."""
        names = []
        for at, axis in enumerate(self.axes):
            here = self.coordinate(rank, at)
            first = axis.first_alike[here]
            if not axis.folded:
                names.append(f"{axis.name} {here}")
            elif axis.parts:
                last = bisect_right(axis.first_alike, first) - 1
                names.append(f"{axis.name} {first}{f'-{last}' if last > first else ''}")
        return ", ".join(names)

    @cached_property
    def folded_axes(self) -> tuple[int, ...]:
        """Their numbers."""
        return tuple(at for at, axis in enumerate(self.axes) if axis.folded)

    def constant_axes(self, members: Collection[int]) -> list[int]:
        """Folded axes along which the members of a communicator have one coordinate. Raises CannotFold if they have
        some coordinates of a folded axis, but not all.
        """
        constant = []
        for at in self.folded_axes:
            axis, seen = self.axes[at], {self.coordinate(rank, at) for rank in members}
            if axis.size == 1 or len(seen) == axis.size:
                continue
            if len(seen) > 1:
                raise CannotFold(
                    f"a communicator has {len(seen)} of the {axis.size} coordinates of the folded axis {axis.name}"
                )
            constant.append(at)
        return constant

    def with_parts(self, boundaries: Mapping[int, Collection[int]]) -> Mesh:
        """With parts that begin at these coordinates as well. `boundaries`: by number of a folded axis."""
        axes = list(self.axes)
        for at, begins in boundaries.items():
            axis = axes[at]
            starts = sorted({*axis.first_alike, *begins})
            parts = tuple(end - first for first, end in pairwise((*starts, axis.size)))
            axes[at] = replace(axis, parts=parts if len(parts) > 1 else ())
        return Mesh(tuple(axes))

    def boundaries(self, members: Sequence[int], kinds: Sequence[Any]) -> dict[int, set[int]]:
        """Where members of a communicator that are of several kinds are parted. By number of a folded axis along which
        they differ: coordinates from which on they are not as at the one before. `kinds`: by member.
        """
        found: dict[int, set[int]] = {}
        for at in self.folded_axes:
            at_each: dict[int, list[Any]] = {}
            for rank, kind in zip(members, kinds, strict=True):
                at_each.setdefault(self.coordinate(rank, at), []).append(kind)
            begins = {here for before, here in pairwise(sorted(at_each)) if at_each[before] != at_each[here]}
            if begins:
                found[at] = begins
        return found

    def shift(self, axes: Sequence[int], rank: int, to: int) -> int:
        """By how much a rank's number grows when its coordinates on these axes change from `rank`'s to `to`'s."""
        return sum((self.coordinate(to, at) - self.coordinate(rank, at)) * self.strides[at] for at in axes)

    def moved(self, peer: int, rank: int, to: int) -> int:
        """Where `to` finds the rank that is to it what `peer` is to `rank`. Folded axes are rings."""
        for at in self.folded_axes:
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
            "axes": [[axis.name, axis.size, axis.folded, axis.parts] for axis in self.mesh.axes],
            "apart": sorted(self.apart),
            "witnesses": sorted(self.witnesses),
            "similar": self.similar,
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Folding:
        axes = tuple(
            Axis(str(name), int(size), bool(folded), tuple(map(int, parts)))
            for name, size, folded, parts in told["axes"]
        )
        apart, witnesses = (frozenset(map(int, told[ranks])) for ranks in ("apart", "witnesses"))
        return cls(Mesh(axes), apart, witnesses, bool(told["similar"]))
