"""Reads the value of `--fold`: the axes of the mesh of ranks, and which of them are folded."""

from __future__ import annotations

import re

from emu.contract.folding import Axis, Mesh
from phantora_async.errors import UsageError

FOLDED_NAMES = frozenset(("dp", "data", "data_parallel", "dp_replicate", "dp_shard", "fsdp", "replicate", "ddp"))
"""The names of axes whose ranks do the same work on other data: they are folded if no axis is marked."""
_AXIS = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<mark>\*?)=(?P<sizes>\d+(?:\+\d+)*)(?::(?P<turns>\d+(?:\+\d+)*))?")
_HINT = (
    "--fold dp=128,pp=16,tp=8: all axes of the mesh of ranks, the slowest first; data-parallel ones are folded, "
    "or those that are marked: --fold 'replica*=4,stage=2'; parts of a folded axis whose ranks differ: "
    "--fold dp=100+28, and parts that repeat, such as one GPU of each server of eight: --fold dp=128:3+1+4"
)


def mesh_of(text: str, world_size: int) -> Mesh:
    """The mesh that the text describes. Raises UsageError."""
    axes = []
    marked = "*" in text
    for part in text.split(","):
        found = _AXIS.fullmatch(part.strip())
        sizes = tuple(map(int, found["sizes"].split("+"))) if found is not None else ()
        turns = tuple(map(int, (found["turns"] or "").split("+"))) if found is not None and found["turns"] else ()
        if found is None or min(*sizes, *turns, 1) < 1:
            raise UsageError(f"--fold {text}: {part.strip()!r} is no axis with its size", _HINT)
        if sum(turns) > sum(sizes):
            raise UsageError(f"--fold {text}: parts of {found['name']} repeat after more ranks than it has", _HINT)
        folded = bool(found["mark"]) if marked else found["name"] in FOLDED_NAMES
        if (len(sizes) > 1 or turns) and not folded:
            raise UsageError(f"--fold {text}: {found['name']} has parts, but is not folded", _HINT)
        axes.append(Axis(found["name"], sum(sizes), folded, sizes if len(sizes) > 1 else (), turns))
    names = [axis.name for axis in axes]
    if len({*names}) < len(names):
        raise UsageError(f"--fold {text}: two axes have one name", _HINT)
    mesh = Mesh(tuple(axes))
    if mesh.world_size != world_size:
        raise UsageError(f"--fold {text}: a mesh of {mesh.world_size} ranks, but the run has {world_size}", _HINT)
    if not any(axis.folded for axis in axes):
        raise UsageError(f"--fold {text}: no axis is folded; {', '.join(names)} are not known as data-parallel", _HINT)
    return mesh
