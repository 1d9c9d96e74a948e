"""Shardings as JSON. A reader makes of it shardings and plain values and nothing else: another server's program may
have written it.

Plain values are themselves; anything else is an array that begins with its kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


class CannotEncode(Exception):
    """The value holds something else, or a mesh that is none of those given."""


class Encoding:
    """`meshes`: the writer's, or the reader's own, which are called by their numbers."""

    def __init__(self, meshes: list[Any]) -> None:
        import torch
        from torch.distributed.tensor import _dtensor_spec, placement_types
        from torch.distributed.tensor._op_schema import OutputSharding
        from torch.distributed.tensor._ops import _math_ops

        self._meshes = meshes
        places: Any = placement_types
        norms: Any = _math_ops
        specs: Any = _dtensor_spec
        self._torch = torch
        self._spec, self._result = specs.DTensorSpec, OutputSharding
        self._sequences: dict[str, type[Any]] = {"tuple": tuple, "list": list, "size": torch.Size}
        self._named: dict[str, type[Any]] = {"meta": specs.TensorMeta}
        if hasattr(specs, "ShardOrderEntry"):
            self._named["order"] = specs.ShardOrderEntry
        self._placements: dict[str, tuple[type[Any], tuple[str, ...]]] = {
            "shard": (places.Shard, ("dim",)),
            "replicate": (places.Replicate, ()),
            "partial": (places.Partial, ("reduce_op",)),
            "strided": (places._StridedShard, ("dim", "split_factor")),
            "norm": (norms._NormPartial, ("norm_type",)),
        }
        self._writers: dict[type[Any], Callable[[Any], Any]] = {
            kind: lambda value: value for kind in (type(None), bool, int, float, str)
        }
        self._writers |= {kind: self._sequence_writer(name) for name, kind in (self._sequences | self._named).items()}
        self._writers |= {kind: self._placement_writer(name) for name, (kind, _) in self._placements.items()}
        self._writers[torch.dtype] = lambda value: ["dtype", str(value).removeprefix("torch.")]
        self._writers[self._spec] = lambda value: ["spec", self._fields({**vars(value), "_hash": None})]
        self._writers[self._result] = lambda value: ["result", self._fields(vars(value))]

    def encode(self, value: Any) -> bytes:
        """Returns the value as bytes. Raises CannotEncode."""
        return json.dumps(self._written(value), separators=(",", ":")).encode()

    def decode(self, content: bytes) -> Any:
        """Returns the value of these bytes. Raises ValueError, or what its types raise, if `encode` has not written
        them.
        """
        return self._read(json.loads(content))

    def _written(self, value: Any) -> Any:
        for number, mesh in enumerate(self._meshes):
            if mesh is value:
                return ["mesh", number]
        writer = self._writers.get(type(value))
        if writer is None:
            raise CannotEncode(type(value).__name__)
        return writer(value)

    def _sequence_writer(self, name: str) -> Callable[[Any], Any]:
        return lambda value: [name, *map(self._written, value)]

    def _placement_writer(self, name: str) -> Callable[[Any], Any]:
        names = self._placements[name][1]
        return lambda value: [name, *(self._written(getattr(value, one)) for one in names)]

    def _fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {name: self._written(value) for name, value in fields.items()}

    def _read(self, value: Any) -> Any:
        if not isinstance(value, list):
            if isinstance(value, dict):
                raise ValueError(value)
            return value
        kind, *parts = value
        if kind in self._sequences:
            return self._sequences[kind](map(self._read, parts))
        if kind in self._named:
            return self._named[kind](*map(self._read, parts))
        if kind in self._placements:
            made, names = self._placements[kind]
            return made(**dict(zip(names, map(self._read, parts), strict=True)))
        if kind == "mesh":
            return self._meshes[parts[0]]
        if kind == "dtype":
            found = getattr(self._torch, parts[0])
            if not isinstance(found, self._torch.dtype):
                raise ValueError(parts[0])
            return found
        fields = {name: self._read(one) for name, one in parts[0].items()}
        if kind == "result":
            return self._result(**fields)
        if kind != "spec":
            raise ValueError(kind)
        spec = object.__new__(self._spec)
        spec.__dict__.update(fields)
        return spec
