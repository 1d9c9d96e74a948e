"""Changes the number of replicas: finds which recorded rank does what a rank of the wider or narrower job would do.

Along a folded axis ranks do the same work on other data. Those that are apart (by default the first and the last one)
keep their places, counted from the nearer end. Every other coordinate does what one of the recorded others does: one of
its turn, if the axis has turns (one GPU of each server differs, for example).

What a rank does follows from the number of replicas where a collective gives each of them a part of its own: shards.
A replay can say nothing of that, and stops.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from emu.contract.folding import Axis, CannotFold, Folding, Mesh
from emu.contract.records import NcclKind
from phantora_async.errors import PathChanged, UsageError
from phantora_async.recording import Recording
from phantora_async.recording.recording import Setup
from phantora_async.recording.rows import Call, kernel_launches, step_ends
from phantora_async.replaying.differences import WIDTH, Allowed
from phantora_async.replaying.site_lines import line_of
from phantora_async.virtual_time import Comm
from phantora_async.virtual_time.facts import DTYPE_NBYTES

SHARDING = frozenset(
    (NcclKind.ALL_GATHER, NcclKind.REDUCE_SCATTER, NcclKind.ALL_TO_ALL, NcclKind.GATHER, NcclKind.SCATTER)
)
"""The operations that give each member a part, or take one from it."""
ONE_BY_ONE = frozenset((NcclKind.BROADCAST, NcclKind.REDUCE))
"""Operations with a root: if each member is the root in turn, each has a part of its own."""
SMALL_NBYTES = 4096
"""The size up to which data that ranks exchange before the first step has ended does not count as shards."""
_AXIS = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<size>\d+)")
_EXAMPLE = "for example: --width dp=4096"


@dataclass(slots=True)
class _Grid:
    """The recorded members of a communicator as a grid."""

    members: tuple[int, ...]
    along: list[list[int]]
    """Their coordinates along each axis, in their order."""
    constant: list[int] | None = None
    """The folded axes along which they have one coordinate; None: not computed yet."""
    images: dict[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)
    """The images, by the coordinates on these axes of the rank that asks."""


@dataclass(frozen=True)
class Width:
    """The change from one mesh to another, which differs in the sizes of folded axes. Ranks that are apart are so in
    both.
    """

    before: Folding
    now: Folding
    places: tuple[dict[int, int] | None, ...]
    """For each axis: the recorded coordinate of each that is apart; None: the axis is unchanged."""
    others: tuple[Mapping[int, int], ...]
    """For each axis whose size changes, by the first coordinate of a turn: the recorded coordinate of those that are
    not apart.
    """
    _grids: dict[int, _Grid] = field(default_factory=dict, compare=False, repr=False)
    """The grids by identity of recorded members: many ranks ask about the same ones."""

    @cached_property
    def changed(self) -> tuple[int, ...]:
        """The axes whose size changes."""
        return tuple(at for at, places in enumerate(self.places) if places is not None)

    def recorded(self, rank: int) -> int:
        """The recorded rank that does what this one would do."""
        found = 0
        for at, places in enumerate(self.places):
            here = self.now.mesh.coordinate(rank, at)
            if places is not None:
                turn = self.now.mesh.axes[at].first_alike[here]
                here = places[here] if here in places else self.others[at][turn]
            found += here * self.before.mesh.strides[at]
        return found

    def moved(self, recorded: int, constant: Collection[int], rank: int) -> int:
        """The rank that does what this recorded rank did; on the `constant` axes the one beside `rank`. Raises
        CannotFold if there is none.
        """
        found = 0
        for at, places in enumerate(self.places):
            here = self.before.mesh.coordinate(recorded, at)
            if at in constant:
                here = self.now.mesh.coordinate(rank, at)
            elif places is not None:
                apart = {then: now for now, then in places.items()}
                turn, turns = self.before.mesh.axes[at].first_alike[here], self.now.mesh.axes[at].first_alike
                others = (one for one, first in enumerate(turns) if first == turn and one not in places)
                here = apart[here] if here in apart else next(others, -1)
                if here < 0:
                    raise CannotFold(f"nobody does what rank {recorded} did")
            found += here * self.now.mesh.strides[at]
        return found

    def constant(self, members: Collection[int]) -> list[int]:
        """The folded axes along which recorded members have one coordinate. Raises CannotFold."""
        return self.before.mesh.constant_axes(members)

    def spans(self, members: tuple[int, ...]) -> bool:
        """Returns true if recorded members differ along an axis that has another size now."""
        along = self._grid_of(members).along
        return any(len(along[at]) > 1 for at in self.changed)

    def image(self, members: tuple[int, ...], rank: int) -> tuple[int, ...]:
        """The members of the communicator that `rank` has in the place of this recorded one, in its order. Raises
        CannotFold.
        """
        now, grid = self.now.mesh, self._grid_of(members)
        constant = self.constant(members) if grid.constant is None else grid.constant
        grid.constant = constant
        here = tuple(now.coordinate(rank, at) for at in constant)
        image = grid.images.get(here)
        if image is None:
            image = grid.images[here] = self._image(grid, dict(zip(constant, here, strict=True)))
        return image

    def _grid_of(self, members: tuple[int, ...]) -> _Grid:
        grid = self._grids.get(id(members))
        if grid is None:
            mesh = self.before.mesh
            along = [list(dict.fromkeys(mesh.coordinate(one, at) for one in members)) for at in range(len(mesh.axes))]
            grid = self._grids[id(members)] = _Grid(members, along)
        return grid

    def _image(self, grid: _Grid, constant: Mapping[int, int]) -> tuple[int, ...]:
        """The image of a grid. `constant`: the coordinates on axes along which members do not differ."""
        before, now, along = self.before.mesh, self.now.mesh, grid.along
        order = _nesting(before, grid.members, along)
        ranges: list[Sequence[int]] = []
        for at, places in enumerate(self.places):
            if at in constant:
                ranges.append([constant[at]])
            elif places is None:
                ranges.append(along[at])
            elif along[at] == list(range(before.axes[at].size)):
                ranges.append(range(now.axes[at].size))
            else:
                raise CannotFold(f"a communicator has its members along {now.axes[at].name} in another order")
        return _grid(now, order, ranges)


def _nesting(mesh: Mesh, members: tuple[int, ...], along: Sequence[Sequence[int]]) -> list[int]:
    """The axes in the order in which members follow each other, the slowest first. Raises CannotFold if the members are
    no grid.
    """
    place = {member: at for at, member in enumerate(members)}
    steps = []
    for at, here in enumerate(along):
        second = members[0] + (here[1] - here[0]) * mesh.strides[at] if len(here) > 1 else members[0]
        steps.append(place.get(second, 0))
    order = sorted(range(len(along)), key=lambda at: -steps[at])
    if _grid(mesh, order, along) != members:
        raise CannotFold("the members of a communicator are no grid")
    return order


def _grid(mesh: Mesh, order: Sequence[int], along: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The ranks with these coordinates, by axis; `order`: the slowest axis first."""
    found = [0]
    for at in order:
        stride = mesh.strides[at]
        found = [rank + here * stride for rank in found for here in along[at]]
    return tuple(found)


def widened(setup: Setup, texts: Sequence[str]) -> tuple[Setup, Width | None]:
    """The settings of the run with other sizes of axes, AXIS=SIZE each. Raises UsageError."""
    sizes: dict[str, int] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        found = _AXIS.fullmatch(part)
        if found is None or int(found["size"]) < 1:
            raise UsageError(f"--width {part}: expected AXIS=SIZE", _EXAMPLE)
        sizes[found["name"]] = int(found["size"])
    if not sizes:
        return setup, None
    folding = setup.folding
    if folding is None:
        raise UsageError("--width: which ranks are replicas is known of folded runs only", "record a run with --fold")
    axes = folding.mesh.axes
    for name in sizes:
        if name not in {axis.name for axis in axes if axis.folded}:
            known = ", ".join(axis.name for axis in axes if axis.folded)
            raise UsageError(f"--width {name}: the recording has no folded axis of that name, only {known}")
    mesh = Mesh(tuple(_resized(axis, sizes.get(axis.name, axis.size)) for axis in axes))
    width = _width(folding, mesh)
    return replace(setup, servers=_servers(setup.servers, mesh.world_size), folding=width.now), width


def _resized(axis: Axis, size: int) -> Axis:
    if size == axis.size:
        return axis
    if axis.parts:
        raise UsageError(
            f"--width {axis.name}={size}: ranks along this axis differ ({axis}), as shards do that depend on its size",
            "run the script with this width, with --fold",
        )
    period = sum(axis.turns) or 1
    if size < period or (size - axis.size) % period:
        nearest = max(1, round((size - axis.size) / period) + axis.size // period) * period + axis.size % period
        raise UsageError(
            f"--width {axis.name}={size}: ranks along this axis differ in turns of {period} ({axis}), so its size can "
            f"change by multiples of {period}",
            f"for example: --width {axis.name}={nearest}",
        )
    return replace(axis, size=size)


def _servers(servers: tuple[int, ...], world_size: int) -> tuple[int, ...]:
    if len(set(servers)) > 1:
        raise UsageError("--width: the servers of the recording have different numbers of GPUs")
    gpus = min(servers[0], world_size)
    if world_size % gpus:
        raise UsageError(f"--width: {world_size:,} ranks do not fill servers of {gpus} GPUs")
    return (gpus,) * (world_size // gpus)


def _width(folding: Folding, mesh: Mesh) -> Width:
    before = folding.mesh
    apart = folding.apart - folding.witnesses
    places: list[dict[int, int] | None] = []
    others: list[Mapping[int, int]] = []
    for at, axis in enumerate(mesh.axes):
        then = before.axes[at].size
        if then == 1 != axis.size:
            raise UsageError(f"--width {axis.name}={axis.size}: one replica does not show what several do")
        places.append(None if axis.size == then else _apart(before, apart, at, axis))
        others.append({} if axis.size == then else _others(folding, apart, at, axis, places[-1] or {}))
    ranks = set()
    for rank in apart:
        found = 0
        for at, known in enumerate(places):
            here = before.coordinate(rank, at)
            found += (here if known is None else {one: now for now, one in known.items()}[here]) * mesh.strides[at]
        ranks.add(found)
    return Width(folding, Folding(mesh, frozenset(ranks)), tuple(places), tuple(others))


def _apart(before: Mesh, apart: frozenset[int], at: int, axis: Axis) -> dict[int, int]:
    then = before.axes[at].size
    found: dict[int, int] = {}
    for here in sorted({before.coordinate(rank, at) for rank in apart}):
        there = here if here < then / 2 else axis.size - then + here
        if not 0 <= there < axis.size or there in found:
            raise UsageError(f"--width {axis.name}={axis.size}: {len(found) + 1} replicas and more are apart")
        found[there] = here
    return found


def _others(folding: Folding, apart: frozenset[int], at: int, axis: Axis, places: Mapping[int, int]) -> dict[int, int]:
    """The recorded coordinate for each first coordinate of a turn: a representative's if there is one, else a
    witness's.
    """
    mesh, before = folding.mesh, folding.mesh.axes[at]
    own = {mesh.coordinate(rank, at) for rank in apart}
    witnesses = {mesh.coordinate(rank, at) for rank in folding.witnesses}
    found: dict[int, int] = {}
    for here, turn in enumerate(before.first_alike):
        if here in own:
            continue
        if turn not in found or (found[turn] in witnesses and here not in witnesses):
            found[turn] = here
    if any(turn not in found for here, turn in enumerate(axis.first_alike) if here not in places):
        which = f"recorded replicas of one of the turns ({axis})" if axis.turns else f"{before.size} recorded replicas"
        raise UsageError(
            f"--width {axis.name}={axis.size}: all {which} are apart, so that none shows what the others do",
            f"record with {axis.name}={len(own) + 1} or more, or with --fold-apart none",
        )
    return found


def check_width(recording: Recording, width: Width, allowed: Allowed) -> None:
    """Raises PathChanged if ranks did something that follows from the number of replicas, unless that is `allowed`."""
    if WIDTH in allowed:
        return
    seen: set[tuple[object, ...]] = set()
    for rank in recording.own:
        comms = recording.comms_of(rank)
        key = (recording.key_of(rank), *(comm.id for comm in comms))
        if key not in seen:
            seen.add(key)
            _check_rank(recording, width, rank, comms)


def _check_rank(recording: Recording, width: Width, rank: int, comms: Sequence[Comm]) -> None:
    wide = [width.spans(comm.members) for comm in comms]
    rows = recording.stream(rank).rows
    ends = step_ends(rows)
    first = int(ends[0]) if len(ends) else 0
    roots: dict[tuple[int, int], set[int]] = {}
    for at in kernel_launches(rows).tolist():
        for call in recording.kernels[int(rows["values"][at, 0])]:
            if not wide[call.comm]:
                continue
            nbytes = call.elements * DTYPE_NBYTES[call.dtype]
            in_turn = False
            if at > first and call.op in ONE_BY_ONE:
                known = roots.setdefault((call.comm, call.op), set())
                known.add(call.root)
                in_turn = len(known) > 1
            if in_turn or (call.op in SHARDING and (at > first or nbytes > SMALL_NBYTES)):
                raise _changed(recording, width, rank, call, nbytes, int(rows["site"][at]))


def _changed(recording: Recording, width: Width, rank: int, call: Call, nbytes: int, site: int) -> PathChanged:
    names = " and ".join(width.now.mesh.axes[at].name for at in width.changed)
    return PathChanged(
        f"the replay leaves the recorded path: rank {rank} calls {NcclKind(call.op).name.lower()} with a part of "
        f"{nbytes:,} bytes for each rank along {names} at {line_of(recording, rank, site)}: the parts, and kernels on "
        f"them, depend on how many ranks there are",
        "run the script with this width, with --fold; or replay with --allow width, if each rank's part stays as it is",
    )
