"""Folded jobs: which ranks have a process, which of them stands for each other rank, and what that rank's calls name.

A *mesh* gives each rank coordinates. Ranks that differ in folded axes only do the same work, so they have one *role*.
A folded axis can have *parts*, such as the coordinates whose shards have one size, and *turns*, parts that repeat, such
as the GPUs of each server. Ranks of two parts, or of two turns, differ in role.
A role's *representative* has a process, and plays the role's *mirrored* ranks as well. Ranks that are *apart* have
a process each and are nobody's representative.

The *image* of a communicator of the representative is the one that a mirrored rank has in its place: on folded axes
along which all members have the representative's coordinate, they have the mirrored rank's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from math import lcm, prod
from typing import Any


class CannotFold(Exception):
    """A call has no image under this mesh. The message says why, for a user who knows the script's groups."""

    def __init__(self, reason: str, finer: str = "") -> None:
        """`finer`: a mesh, as `--fold` takes it, under which the call has one; empty: none is known."""
        super().__init__(reason)
        self.finer = finer


class CannotBePlayed(SystemExit):
    """Raised in a rank: what the script does cannot be played. Scripts that catch exceptions do not catch it."""

    CODE = 80
    """The rank's exit code, and the run's."""
    _BEGINS = "the script cannot be folded: "

    def __init__(self, reason: str) -> None:
        super().__init__(self.CODE)
        self.words = f"{self._BEGINS}{reason}"

    @classmethod
    def told(cls, words: str) -> bool:
        """Tells whether a rank's words are the message of this exception."""
        return words.startswith(cls._BEGINS)


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
        """Returns the reason, and the mesh as `--fold` takes it; both are empty if a rank's words are not this
        exception's message.
        """
        reason, _, mesh = words.rpartition(f": {cls._FOLD}")
        return (reason, mesh) if reason else ("", "")


@dataclass(frozen=True)
class Axis:
    """One axis of a mesh."""

    name: str
    size: int
    folded: bool
    parts: tuple[int, ...] = ()
    """The number of coordinates in each part of a folded axis, in order. Empty: the whole axis is one part."""
    turns: tuple[int, ...] = ()
    """The number of coordinates in each turn of a folded axis: parts that repeat after as many coordinates as they have
    together. ``3, 1, 4``: of each eight coordinates the first three are alike, the next one stands for itself, and so
    on. Empty: all are alike.
    """

    def __str__(self) -> str:
        """Returns the axis in the form that `--fold` takes: ``dp*=2048``, ``dp*=1024+1024``, ``dp*=2048:3+1+4``,
        ``tp=8``.
        """
        turns = f":{'+'.join(map(str, self.turns))}" if self.turns else ""
        return f"{self.name}{'*' * self.folded}={'+'.join(map(str, self.parts)) or self.size}{turns}"

    @cached_property
    def first_alike(self) -> Sequence[int]:
        """For each coordinate: the first one of its part and turn."""
        if not self.folded:
            return range(self.size)
        parts = _numbered(self.parts or (self.size,))
        turns = _numbered(self.turns or (1,))
        first: dict[tuple[int, int], int] = {}
        return [first.setdefault((parts[here], turns[here % len(turns)]), here) for here in range(self.size)]

    @property
    def kinds(self) -> int:
        """The number of coordinates that differ in role from all others before them."""
        return sum(here == first for here, first in enumerate(self.first_alike))

    def told_apart(self, kinds: Sequence[Any]) -> Axis:
        """Returns this axis with parts or turns such that coordinates of different kinds are not alike. `kinds`: by
        coordinate.
        """
        if not self.folded or all(kind == kinds[0] for kind in kinds):
            return self
        period = _period(kinds)
        if period <= self.size // 2:
            return self._with_turns({here for here in range(1, period) if kinds[here - 1] != kinds[here]}, period)
        return self.with_parts({here for here in range(1, self.size) if kinds[here - 1] != kinds[here]})

    def with_parts(self, begins: Collection[int]) -> Axis:
        """Returns this axis with parts that begin at these coordinates as well."""
        starts = sorted({0, *accumulate(self.parts[:-1]), *begins})
        parts = _lengths(starts, self.size)
        return replace(self, parts=parts if len(parts) > 1 else ())

    def _with_turns(self, begins: Collection[int], period: int) -> Axis:
        """Returns this axis with turns that begin at these coordinates of each `period`, as well."""
        both = lcm(period, sum(self.turns) or 1)
        mine = {0, *accumulate(self.turns[:-1])}
        starts = sorted(
            {at + first for at in range(0, both, period) for first in (0, *begins)}
            | {at + first for at in range(0, both, sum(self.turns) or both) for first in mine}
        )
        if both > self.size:
            return self.with_parts({first for first in starts if first < self.size})
        return replace(self, turns=_lengths(starts, both))


def _period(kinds: Sequence[Any]) -> int:
    """Returns after how many elements the sequence repeats; its last repetition may be incomplete. (The failure
    function of Knuth, Morris and Pratt: the time grows with the length alone.)
    """
    border = [0] * len(kinds)
    for at in range(1, len(kinds)):
        length = border[at - 1]
        while length and kinds[at] != kinds[length]:
            length = border[length - 1]
        border[at] = length + (kinds[at] == kinds[length])
    return len(kinds) - border[-1]


def _numbered(lengths: Sequence[int]) -> list[int]:
    """Returns for each coordinate the index of the range that holds it, among consecutive ranges of these lengths."""
    return [number for number, length in enumerate(lengths) for _ in range(length)]


def _lengths(starts: Sequence[int], end: int) -> tuple[int, ...]:
    """Returns the lengths of consecutive ranges that begin at `starts`, the last of which ends at `end`."""
    return tuple(after - first for first, after in pairwise((*starts, end)))


@dataclass(frozen=True)
class Mesh:
    """World ranks as points of a grid. The first axis is the slowest one: neighbours in the last axis are neighbouring
    ranks.
    """

    axes: tuple[Axis, ...]

    def __str__(self) -> str:
        """Returns the mesh in the form that `--fold` takes."""
        return ",".join(map(str, self.axes))

    @property
    def world_size(self) -> int:
        return prod(axis.size for axis in self.axes)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """For each axis: how far apart two neighbours are in rank."""
        return tuple(prod(axis.size for axis in self.axes[at + 1 :]) for at in range(len(self.axes)))

    def coordinate(self, rank: int, axis: int) -> int:
        return rank // self.strides[axis] % self.axes[axis].size

    def role(self, rank: int) -> int:
        """Returns the rank's role, named by the first rank that has it."""
        return sum(axis.first_alike[self.coordinate(rank, at)] * self.strides[at] for at, axis in enumerate(self.axes))

    def role_name(self, rank: int) -> str:
        """Returns the role's name: ``pp 3, tp 0``. It is "" if all axes are folded and none has parts; axes that have
        parts are named by the role's coordinates: ``dp 10-12``, ``dp 3, 11``.
        """
        names = []
        for at, axis in enumerate(self.axes):
            here = self.coordinate(rank, at)
            first = axis.first_alike[here]
            if not axis.folded:
                names.append(f"{axis.name} {here}")
            elif axis.parts or axis.turns:
                names.append(f"{axis.name} {_ranges([at for at, one in enumerate(axis.first_alike) if one == first])}")
        return ", ".join(names)

    @cached_property
    def folded_axes(self) -> tuple[int, ...]:
        """The indices of the folded axes."""
        return tuple(at for at, axis in enumerate(self.axes) if axis.folded)

    def constant_axes(self, members: Collection[int]) -> list[int]:
        """Returns the folded axes along which the members of a communicator have one coordinate. Raises CannotFold if
        they have some coordinates of a folded axis, but not all.
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
        """Returns this mesh with parts that begin at these coordinates as well. `boundaries`: by the index of a folded
        axis.
        """
        axes = list(self.axes)
        for at, begins in boundaries.items():
            axes[at] = axes[at].with_parts(begins)
        return Mesh(tuple(axes))

    def told_apart(self, kinds: Sequence[Any]) -> Mesh:
        """Returns this mesh with parts and turns such that ranks of different kinds differ in role. `kinds`: by rank.
        Ranks that differ along axes that are not folded do so already.
        """
        axes = list(self.axes)
        for at in self.folded_axes:
            along: list[list[Any]] = [[] for _ in range(axes[at].size)]
            for rank, kind in enumerate(kinds):
                along[self.coordinate(rank, at)].append(kind)
            axes[at] = axes[at].told_apart(along)
        return Mesh(tuple(axes))

    def with_root_apart(self, members: Sequence[int], root: int) -> Mesh:
        """Returns this mesh with parts such that the root of a gather or scatter, one of these members, has no member's
        role.
        """
        spanned = [at for at in self.folded_axes if len({self.coordinate(rank, at) for rank in members}) > 1]
        here = [self.coordinate(root, at) for at in spanned]
        kinds = [[self.coordinate(rank, at) for at in spanned] == here for rank in range(self.world_size)]
        return self.told_apart(kinds)

    def with_neighbours_apart(self, rank: int, peer: int) -> Mesh:
        """Returns this mesh with parts or turns such that two ranks that are as far apart as these, along folded axes,
        differ in role: every other one is alike, or, in a ring of an odd number of ranks, none.
        """
        for apart in (_every_other, _each):
            axes = list(self.axes)
            for at in self.folded_axes:
                size = axes[at].size
                step = (self.coordinate(peer, at) - self.coordinate(rank, at)) % size
                if step:
                    axes[at] = axes[at].told_apart(apart(size, min(step, size - step)))
            mesh = Mesh(tuple(axes))
            if mesh != self:
                break
        return mesh

    @property
    def roles(self) -> int:
        """The number of roles."""
        return prod(axis.kinds for axis in self.axes)

    def boundaries(self, members: Sequence[int], kinds: Sequence[Any]) -> dict[int, set[int]]:
        """Returns where the members of a communicator must be divided into parts because they are of several kinds. For
        each folded axis along which they differ, by its index: the coordinates at which the kind is not that of the
        coordinate before. `kinds`: by member.
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
        """Returns by how much a rank's number grows when its coordinates on these axes change from `rank`'s to
        `to`'s.
        """
        return sum((self.coordinate(to, at) - self.coordinate(rank, at)) * self.strides[at] for at in axes)

    def moved(self, peer: int, rank: int, to: int) -> int:
        """Returns the rank that is to `to` what `peer` is to `rank`. Folded axes are rings."""
        for at in self.folded_axes:
            here, size = self.coordinate(peer, at), self.axes[at].size
            there = (here + self.coordinate(to, at) - self.coordinate(rank, at)) % size
            peer += (there - here) * self.strides[at]
        return peer


def _every_other(size: int, step: int) -> list[int]:
    return [here // step % 2 for here in range(size)]


def _each(size: int, step: int) -> list[int]:
    return list(range(size))


def _ranges(numbers: Sequence[int], most: int = 3) -> str:
    """Writes numbers as ranges, at most `most` of them: ``3-5, 11-13, 19-21, ...``"""
    begins = [one for one in numbers if one - 1 not in {*numbers}]
    ends = [one for one in numbers if one + 1 not in {*numbers}]
    texts = [f"{first}-{last}" if last > first else f"{first}" for first, last in zip(begins, ends, strict=True)]
    return ", ".join(texts if len(texts) <= most else [*texts[:most], "..."])


def root_is_alone(mesh: Mesh, members: Sequence[int], root: int) -> CannotFold:
    """Returns the exception to raise where the root of a gather or scatter has the role of another member."""
    return CannotFold(
        f"rank {root} is the root of a gather or scatter among {len(members)} ranks, so it does what no other rank of "
        "its role does",
        str(mesh.with_root_apart(members, root)),
    )


@dataclass(frozen=True)
class Folding:
    """A mesh and the ranks that have processes of their own."""

    mesh: Mesh
    apart: frozenset[int] = frozenset()
    witnesses: frozenset[int] = frozenset()
    """The ranks that are apart in order to be compared with the representative of their role."""
    similar: bool = False
    """True if ranks of a role need only make the same calls: the work between the calls may differ, and is played as
    the representative's.
    """

    @cached_property
    def _representatives(self) -> Mapping[int, int]:
        """The representative of each role. A role whose ranks are all apart has none."""
        found: dict[int, int] = {}
        for rank in range(self.mesh.world_size):
            if rank not in self.apart:
                found.setdefault(self.mesh.role(rank), rank)
        return found

    @cached_property
    def live(self) -> tuple[int, ...]:
        """The ranks that have processes, in ascending order."""
        return tuple(sorted({*self.apart, *self._representatives.values()}))

    @cached_property
    def mirrored(self) -> Mapping[int, tuple[int, ...]]:
        """For each rank that has a process: the other ranks that it plays, in ascending order. Empty for ranks that are
        apart.
        """
        found: dict[int, list[int]] = {rank: [] for rank in self.live}
        for rank in range(self.mesh.world_size):
            if rank not in found:
                found[self.representative(rank)].append(rank)
        return {rank: tuple(others) for rank, others in found.items()}

    def representative(self, rank: int) -> int:
        """Returns the rank whose process does this rank's work: the rank itself if it has a process."""
        return rank if rank in self.apart else self._representatives[self.mesh.role(rank)]

    def witnessed(self, rank: int) -> int | None:
        """Returns the representative of the role of a rank that is apart; None if all ranks of that role are apart."""
        return self._representatives.get(self.mesh.role(rank))

    def image(self, members: tuple[int, ...], rank: int, to: int, group: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Returns the members of the communicator that `to` has in the place of this one of `rank`, in the same order.
        Raises CannotFold if there is none.

        `group`: the members are two of this group, which send each other messages. So `to` has one with the rank that
        is as far from it as the other member is from `rank`, in the order of its own group.
        """
        if group:
            pair = [self.mesh.moved(member, rank, to) for member in members]
            return tuple(sorted(pair, key=self.image(group, rank, to).index))
        shift = self.mesh.shift(self.mesh.constant_axes(members), rank, to)
        image = tuple(member + shift for member in members) if shift else members
        if to not in image:
            raise CannotFold("the members of a communicator are no grid along the folded axes")
        return image

    def check_root(self, members: tuple[int, ...], place: int, rank: int, to: int) -> None:
        """Checks a gather or scatter in which `rank` takes part, whose root is the member at this place, and its image
        for `to`. Raises CannotFold if one of the two ranks is the root and the other is not.
        """
        root = members[place]
        if (root == rank) != (self.image(members, rank, to)[place] == to):
            raise root_is_alone(self.mesh, members, root)

    def to_json(self) -> dict[str, Any]:
        return {
            "axes": [[axis.name, axis.size, axis.folded, axis.parts, axis.turns] for axis in self.mesh.axes],
            "apart": sorted(self.apart),
            "witnesses": sorted(self.witnesses),
            "similar": self.similar,
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Folding:
        axes = tuple(
            Axis(str(name), int(size), bool(folded), *(tuple(map(int, lengths)) for lengths in parts_and_turns))
            for name, size, folded, *parts_and_turns in told["axes"]
        )
        apart, witnesses = (frozenset(map(int, told[ranks])) for ranks in ("apart", "witnesses"))
        return cls(Mesh(axes), apart, witnesses, bool(told["similar"]))
