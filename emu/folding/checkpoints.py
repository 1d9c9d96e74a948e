"""DCP's sharded checkpoints: the rank that coordinates a save gathers every rank's plan, and what each has written.

A rank without a process gives its representative's. Here these become its own: the same tensors, with the chunks that
the rank has in its place. Where its shards lie is told by its representative in the store, beside the gathered objects.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..contract.folding import CannotBePlayed, CannotFold
from ..private.changes import Names
from .ranks import FoldedRanks, Group


class Layout(NamedTuple):
    """The way in which a tensor lies on ranks."""

    members: tuple[int, ...]
    """The world ranks of the mesh."""
    sizes: tuple[int, ...]
    """The sizes of the mesh's axes."""
    sharded: tuple[tuple[int, int, bool], ...]
    """Axes that shard, in the order in which they do: the axis, the tensor's dimension, and whether it is strided."""

    def chunk(self, size: Sequence[int], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns sizes and offsets of the rank's chunk of a tensor of this size."""
        sizes, offsets = list(size), [0] * len(size)
        place = self.members.index(rank)
        at: dict[int, int] = {}
        for axis in reversed(range(len(self.sizes))):
            place, at[axis] = divmod(place, self.sizes[axis])
        for axis, dim, _ in self.sharded:
            largest = -(-sizes[dim] // self.sizes[axis])
            start = min(at[axis] * largest, sizes[dim])
            sizes[dim] = min(largest, sizes[dim] - start)
            offsets[dim] += start
        return tuple(sizes), tuple(offsets)


class Checkpoints:
    def __init__(self, ranks: FoldedRanks) -> None:
        self._ranks = ranks
        self._layouts: dict[str, Layout] = {}
        """The layouts of the tensors of this rank's last plan, by the tensor's name."""
        self._calls: Counter[tuple[int, ...]] = Counter()
        """The number of calls of each group, by its members."""
        self._moved: dict[tuple[tuple[int, ...], int], dict[Any, Any]] = {}
        """For each group and member without a process: places in the checkpoint that its representative has, and its
        own.
        """

    def change_items(self, names: Names) -> None:
        names.change("_create_write_items_for_dtensor", self._noting_layout)

    def change_gathering(self, names: Names) -> None:
        names.change("_DistWrapper.gather_object", self._gathering)

    def change_processes(self, names: Names) -> None:
        names.change("_ProcessBasedAsyncCheckpointExecutor.execute_save", _refusing)

    def _noting_layout(self, real: Any) -> Any:
        def create(fqn: str, tensor: Any) -> Any:
            self._note(fqn, tensor)
            return real(fqn, tensor)

        return create

    # What these call is left out of the program's host time, see `frame_counter`.

    def _note(self, fqn: str, tensor: Any) -> None:
        sharded = [
            (axis, one.dim % tensor.dim(), type(one).__name__ == "_StridedShard")
            for axis, one in enumerate(tensor.placements)
            if hasattr(one, "dim")
        ]
        mesh = tensor.device_mesh.mesh
        # Strided: another axis has cut the tensor before, though it comes later in the mesh.
        order = sorted(sharded, key=lambda one: one[2])
        self._layouts[fqn] = Layout(tuple(mesh.flatten().tolist()), tuple(mesh.shape), tuple(order))

    def _announce(self, wrapper: Any, gathered_object: Any) -> tuple[Group, int]:
        """Tells where this rank's tensors lie if it plays others. Returns the group, and the number of this call."""
        from torch.distributed import get_process_group_ranks

        members = tuple(get_process_group_ranks(wrapper.group))
        call = self._calls[members]
        self._calls[members] += 1
        if _is_plan(gathered_object) and self._ranks.folding.mirrored.get(self._ranks.rank):
            layouts = {item.index.fqn: self._layouts.get(item.index.fqn) for item in gathered_object.items}
            self._ranks.store.set(_key(members, self._ranks.rank, call), pickle.dumps(layouts))
        return Group(members, 0), call

    def _gathering(self, real: Any) -> Any:
        def gather_object(wrapper: Any, gathered_object: Any) -> Any:
            if not wrapper.use_dist:
                return real(wrapper, gathered_object)
            group, call = self._announce(wrapper, gathered_object)
            gathered = real(wrapper, gathered_object)
            if gathered is not None:
                self._replace(group, call, gathered)
            return gathered

        return gather_object

    def _replace(self, group: Group, call: int, gathered: list[Any]) -> None:
        """Replaces what was gathered for ranks without processes. Raises CannotBePlayed."""
        layouts: dict[int, Mapping[str, Layout | None]] = {}
        for place, member in enumerate(group.members):
            if member in self._ranks.live:
                continue
            gathered_object = gathered[place]
            try:
                its_group, its_place = self._ranks.stand_in(group, place)
                rank = its_group.members[its_place]
                if _is_plan(gathered_object):
                    if rank not in layouts:
                        layouts[rank] = pickle.loads(self._ranks.store.get(_key(its_group.members, rank, call)))
                    gathered[place] = self._plan(gathered_object, layouts[rank], rank, member, group.members)
                elif isinstance(gathered_object, list) and gathered_object and all(map(_is_result, gathered_object)):
                    moved = self._moved.get((group.members, member), {})
                    gathered[place] = [_result(one, moved, its_place, place) for one in gathered_object]
            except CannotFold as error:
                raise CannotBePlayed(f"a sharded checkpoint: {error}") from None

    def _plan(
        self, plan: Any, layouts: Mapping[str, Layout | None], rank: int, member: int, group: tuple[int, ...]
    ) -> Any:
        moved: dict[Any, Any] = {}
        items = [self._item(item, layouts.get(item.index.fqn), rank, member) for item in plan.items]
        for before, now in zip(plan.items, items, strict=True):
            moved[before.index] = now.index
        if plan.items:  # of a plan that is the one before, nothing is told
            self._moved[group, member] = moved
        return dataclasses.replace(plan, items=items)

    def _item(self, item: Any, layout: Layout | None, rank: int, member: int) -> Any:
        data = item.tensor_data
        if data is None or item.type.name != "SHARD":
            return item  # all have it
        fqn = item.index.fqn
        if layout is None:
            raise CannotFold(f"{fqn} is sharded, but is no DTensor, so where other ranks' shards lie is not known")
        if layout.chunk(data.size, rank) != (tuple(data.chunk.sizes), tuple(data.chunk.offsets)):
            raise CannotFold(f"how {fqn} is sharded is not understood")
        image = self._ranks.folding.image(layout.members, rank, member)
        sizes, offsets = layout._replace(members=image).chunk(data.size, member)
        if sizes != tuple(data.chunk.sizes):
            raise CannotFold(f"rank {member}'s part of {fqn} has another size than rank {rank}'s")
        start = torch.Size(offsets)
        chunk = dataclasses.replace(data.chunk, offsets=start)
        index = dataclasses.replace(item.index, offset=start)
        return dataclasses.replace(item, index=index, tensor_data=dataclasses.replace(data, chunk=chunk))


def _result(result: Any, moved: Mapping[Any, Any], place: int, its_place: int) -> Any:
    """Returns the result of a rank's writing as if another rank had written it: in a file of its own."""
    where = result.storage_data
    path = getattr(where, "relative_path", "")
    if path.startswith(f"__{place}_"):
        where = dataclasses.replace(where, relative_path=f"__{its_place}_{path.removeprefix(f'__{place}_')}")
    return dataclasses.replace(result, index=moved.get(result.index, result.index), storage_data=where)


def _is_plan(gathered_object: Any) -> bool:
    return type(gathered_object).__name__ == "SavePlan"


def _is_result(gathered_object: Any) -> bool:
    return type(gathered_object).__name__ == "WriteResult"


def _key(members: tuple[int, ...], rank: int, call: int) -> str:
    return f"folded plan {hashlib.blake2b(repr(members).encode(), digest_size=16).hexdigest()} {rank} {call}"


def _refusing(_: Any) -> Any:
    """Returns what takes the place of saving in processes: each rank's joins a group of all ranks' processes, most of
    which are not there.
    """

    def save(*_: Any, **__: Any) -> Any:
        raise CannotBePlayed(
            "async_save with AsyncCheckpointerType.PROCESS: checkpointing processes of all ranks form a group, and "
            "mirrored ranks have none; AsyncCheckpointerType.THREAD works"
        )

    return save
