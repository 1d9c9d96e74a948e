"""FSDP2's shards that are not all of one size, because a dimension is no multiple of their number: ranks that have
fewer rows, or none, do other work. So the axis along which they lie needs parts, one for each size of shards.

All shards are known when the first module runs, or when one that was built without memory gets it and its ranks begin
to draw what each of them holds. If the mesh lacks parts by then, the rank ends and says which.
"""

from __future__ import annotations

import functools
from typing import Any

from ..contract.folding import NeedsParts
from ..private.changes import Names
from .ranks import FoldedRanks


class Shards:
    def __init__(self, ranks: FoldedRanks) -> None:
        self._mesh = ranks.folding.mesh
        self._finer = self._mesh
        """The mesh with the parts that shards need which have been made."""
        self._uneven = ""
        """Describes the first of these shards, in words."""

    def change(self, names: Names) -> None:
        names.change("FSDPParam._init_sharded_param", self._noting)
        names.change("FSDPState._lazy_init", self._checking)

    def _noting(self, real: Any) -> Any:
        def init_sharded_param(parameter: Any, *arguments: Any, **options: Any) -> Any:
            result = real(parameter, *arguments, **options)
            self.note(parameter)
            return result

        return init_sharded_param

    def note(self, parameter: Any) -> None:
        """Notes a parameter of FSDP2, once it is sharded. What this calls is left out of the program's host time
        (`frame_counter`).
        """
        group = getattr(parameter.mesh_info, "shard_process_group", None)
        if group is not None:
            from torch.distributed import get_process_group_ranks

            size, largest = tuple(parameter._orig_size), tuple(parameter.padded_sharded_param_size)
            self.made(size, largest, tuple(get_process_group_ranks(group)))

    def made(self, size: tuple[int, ...], largest: tuple[int, ...], members: tuple[int, ...]) -> None:
        """Notes that a parameter has been sharded over these ranks. `largest`: the size of the first shard, which is
        never smaller than others. PyTorch refuses uneven shards in all dimensions but the first.
        """
        if not size or size[1:] != largest[1:] or size[0] == largest[0] * len(members):
            return
        rows = [min(max(size[0] - place * largest[0], 0), largest[0]) for place in range(len(members))]
        self._finer = self._finer.with_parts(self._finer.boundaries(members, rows))
        if self._finer != self._mesh and not self._uneven:
            self._uneven = f"{size[0]:,} rows over {len(members):,} ranks"

    def change_modules(self) -> None:
        """Makes the method that gives memory to modules of the `meta` device check the shards."""
        import torch

        torch.nn.Module.to_empty = self._checking(torch.nn.Module.to_empty)

    def _checking(self, real: Any) -> Any:
        @functools.wraps(real)
        def checked(module_or_state: Any, *arguments: Any, **options: Any) -> Any:
            if self._finer != self._mesh:
                raise NeedsParts(f"FSDP2 shards {self._uneven}, so ranks of one role differ", self._finer)
            return real(module_or_state, *arguments, **options)

        return checked
