"""Results of sharding propagation that all ranks of this machine share: the first rank that needs one computes it.

A result may be shared if it follows from its name. So only operators on lists of tensors are: what torch computes for
them depends on placements, shapes and the mesh, and never on where in the mesh this rank is. Results by which arguments
have to be redistributed are not shared, since they may hold local shapes.
"""

from __future__ import annotations

import contextlib
import copyreg
import fcntl
import hashlib
import io
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_OPERATORS = ("aten::_foreach_", "aten::_fused_", "aten::stack")
_FEWEST_SPECS = 16
"""With fewer a result is computed as fast as it is read."""
_STRATEGIES = "torch.distributed.tensor."
"""Modules whose strategies are known. A strategy of the program's own may do anything."""


class _Unnamed(Exception):
    """The schema holds something whose value cannot be written down."""


class Results:
    """The results of one run."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made if it is missing."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def get(self, schema: Any, compute: Callable[[], Any]) -> Any:
        """The result for `schema` (an OpSchema that `follows_from_name`). `compute` is called if no rank has told it,
        by one rank at a time for the same name; or if it cannot be shared.
        """
        meshes: list[Any] = []
        try:
            name = _name(schema, meshes)
        except _Unnamed:
            return compute()
        found = self._read(name, meshes)
        if found is None:
            with self._locked(name):
                found = self._read(name, meshes)
                if found is None:
                    result = compute()
                    told = _told(result, meshes)
                    self._write(name, told)
                    return _load(told, meshes)[0] or result  # as in the ranks that will take it
        return found[0] if found[0] is not None else compute()

    def _read(self, name: str, meshes: list[Any]) -> tuple[Any] | None:
        """None: no rank has told it. (None,): it is not shared."""
        try:
            told = (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None
        found: tuple[Any] = _load(told, meshes)
        return found

    def _write(self, name: str, told: bytes) -> None:
        unfinished = self._folder / f"{name}.part"
        unfinished.write_bytes(told)
        os.replace(unfinished, self._folder / name)

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with open(self._folder / f"{name}.lock", "a") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
            yield


def follows_from_name(propagator: Any, schema: Any) -> bool:
    """May ranks share the result?"""
    if not str(schema.op._schema.name).startswith(_OPERATORS):
        return False
    own = getattr(propagator, "op_single_dim_strategy_funcs", {}).get(schema.op)
    strategy = getattr(own, "func", own) or propagator.op_strategy_funcs.get(schema.op)
    return str(getattr(strategy, "__module__", "")).startswith(_STRATEGIES)


def _redistributes_nothing(result: Any) -> bool:
    from torch.distributed.tensor._op_schema import OutputSharding

    return type(result) is OutputSharding and result.redistribute_schema is None and not result.needs_redistribute


def _told(result: Any, meshes: list[Any]) -> bytes:
    """What other ranks read."""
    if _redistributes_nothing(result):
        with contextlib.suppress(pickle.PicklingError):  # it refers to a mesh that is none of its arguments'
            return _dump(result, meshes)
    return _dump(None, meshes)


def _name(schema: Any, meshes: list[Any]) -> str:
    """Equal for schemas of equal results, in all ranks. The meshes that the schema refers to are put into `meshes`.

    Raises _Unnamed, also if there are too few tensors.
    """
    import torch

    writer = _Writer(meshes)
    value = writer.text((schema.args_schema, tuple(sorted(schema.kwargs_schema.items()))))
    if writer.nspecs < _FEWEST_SPECS:
        raise _Unnamed
    parts = (str(schema.op), value, *map(_mesh_text, meshes), str(torch.get_default_dtype()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class _Writer:
    """Writes values of a schema as text."""

    def __init__(self, meshes: list[Any]) -> None:
        import torch
        from torch.distributed.tensor import placement_types
        from torch.distributed.tensor._dtensor_spec import DTensorSpec
        from torch.distributed.tensor._ops import _math_ops

        self.nspecs = 0
        self._meshes = meshes
        self._spec = DTensorSpec
        self._plain = {int, float, bool, str, type(None), torch.dtype}
        placements: Any = placement_types
        norms: Any = _math_ops
        self._placements = {
            placements.Shard,
            placements.Replicate,
            placements.Partial,
            placements._StridedShard,
            norms._NormPartial,
        }
        self._known: dict[Any, str] = {}
        """Texts of specs, by what they say: thousands of parameters have a few shapes."""

    def text(self, value: Any) -> str:
        """Raises _Unnamed."""
        kind = type(value)
        if kind is self._spec:
            return self._spec_text(value)
        if isinstance(value, (tuple, list)):
            return f"{kind.__name__}({','.join(map(self.text, value))})"
        if kind in self._plain or kind in self._placements:
            return f"{kind.__name__}:{value!r}"
        raise _Unnamed

    def _spec_text(self, spec: Any) -> str:
        self.nspecs += 1
        said = {name: value for name, value in vars(spec).items() if name not in ("mesh", "_hash")}
        key = (self._number(spec.mesh), *said.items())
        try:
            text = self._known.get(key)
        except TypeError:  # a symbolic size
            raise _Unnamed from None
        if text is None:
            text = self._known[key] = f"spec({key[0]},{self.text(tuple(sorted(said.items())))})"
        return text

    def _number(self, mesh: Any) -> int:
        for number, known in enumerate(self._meshes):
            if known is mesh:
                return number
        self._meshes.append(mesh)
        return len(self._meshes) - 1


def _mesh_text(mesh: Any) -> str:
    """What strategies ask of a mesh: they compare costs by its sizes, and those of ranks outside are 0."""
    takes_part = mesh.get_coordinate() is not None
    return f"{mesh.device_type} {tuple(mesh.shape)} {mesh.mesh_dim_names} {takes_part}"


def _dump(result: Any, meshes: list[Any]) -> bytes:
    """With numbers in place of the meshes, which are the reader's own."""
    file = io.BytesIO()
    _Pickler(file, meshes).dump((result,))
    return file.getvalue()


def _load(told: bytes, meshes: list[Any]) -> Any:
    return _Unpickler(io.BytesIO(told), meshes).load()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, meshes: list[Any]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._numbers = {id(mesh): number for number, mesh in enumerate(meshes)}

    def persistent_id(self, value: Any) -> int | None:
        return self._numbers.get(id(value))

    def reducer_override(self, value: Any) -> Any:
        """A spec without its hash, which differs between processes."""
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.tensor._dtensor_spec import DTensorSpec

        if isinstance(value, DeviceMesh):
            raise pickle.PicklingError
        if type(value) is not DTensorSpec:
            return NotImplemented
        return copyreg.__newobj__, (DTensorSpec,), vars(value) | {"_hash": None}  # type: ignore[attr-defined]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, meshes: list[Any]) -> None:
        super().__init__(file)
        self._meshes = meshes

    def persistent_load(self, number: Any) -> Any:
        return self._meshes[number]
