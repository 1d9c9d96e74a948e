"""Results of sharding propagation that all ranks of this machine share: the first rank that needs one computes it.

A result may be shared if it follows from its name. So only operators on lists of tensors are: what torch computes for
them depends on placements, shapes and the mesh, and never on where in the mesh this rank is. Results by which arguments
have to be redistributed are not shared, since they may hold local shapes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..keeping.client import Client
from ..private.access import schema_of
from .encoding import CannotEncode, Encoding

_OPERATORS = ("aten::_foreach_", "aten::_fused_", "aten::stack")
_FEWEST_SPECS = 16
"""The fewest specs of a schema whose result is shared: with fewer, a result is computed as fast as it is read."""
_STRATEGIES = "torch.distributed.tensor."
"""Prefix of the modules whose strategies are known. A strategy of the program's own may do anything."""


class _Unnamed(Exception):
    """Raised if the schema holds something whose value cannot be written down."""


class Results:
    """The results of one run."""

    def __init__(self, client: Client, folder: Path, processes: int) -> None:
        """`folder`: of locks, which is made if it is missing. `processes`: how many will ask for each result."""
        folder.mkdir(parents=True, exist_ok=True)
        self._client = client
        self._folder = folder
        self._processes = processes

    def get(self, schema: Any, compute: Callable[[], Any]) -> Any:
        """Returns the result for `schema` (an OpSchema that `follows_from_name`). `compute` is called if no rank has
        told it, by one rank at a time for the same name; or if it cannot be shared.
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
                    encoded = _told(result, meshes)
                    with contextlib.suppress(OSError):  # as in _locked
                        self._write(name, encoded)
                    return _load(encoded, meshes)[0] or result  # as in the ranks that will take it
        return found[0] if found[0] is not None else compute()

    def _read(self, name: str, meshes: list[Any]) -> tuple[Any] | None:
        """Reads a result. None: no rank has told it. (None,): it is not shared."""
        try:
            piece = self._client.get(f"sharding {name}")
            if piece is None:
                return None
            with open(piece.descriptor, "rb") as file:
                encoded = os.pread(file.fileno(), piece.nbytes, 0)
        except OSError:
            return None
        try:
            return _load(encoded, meshes)
        except Exception:  # a rank has published something else: this one computes
            return (None,)

    def _write(self, name: str, encoded: bytes) -> None:
        descriptor = os.memfd_create("phantora", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        with open(descriptor, "wb") as file:
            file.write(encoded)
            file.flush()
            piece = self._client.put(f"sharding {name}", "", self._processes, descriptor)
        if piece is not None and piece.descriptor >= 0:
            os.close(piece.descriptor)

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        try:
            file = open(self._folder / f"{name}.lock", "a")  # noqa: SIM115
        except OSError:  # a full disk: then each rank computes what it needs
            yield
            return
        with file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
            yield


def follows_from_name(propagator: Any, schema: Any) -> bool:
    """Tells whether ranks may share the result."""
    if not str(schema_of(schema.op).name).startswith(_OPERATORS):
        return False
    own = getattr(propagator, "op_single_dim_strategy_funcs", {}).get(schema.op)
    strategy = getattr(own, "func", own) or propagator.op_strategy_funcs.get(schema.op)
    return str(getattr(strategy, "__module__", "")).startswith(_STRATEGIES)


def _redistributes_nothing(result: Any) -> bool:
    from torch.distributed.tensor._op_schema import OutputSharding

    return type(result) is OutputSharding and result.redistribute_schema is None and not result.needs_redistribute


def _told(result: Any, meshes: list[Any]) -> bytes:
    """Encodes the result as other ranks read it; None in its place if it cannot be shared."""
    encoding = Encoding(meshes)
    if _redistributes_nothing(result):
        with contextlib.suppress(CannotEncode):
            return encoding.encode((result,))
    return encoding.encode((None,))


def _load(encoded: bytes, meshes: list[Any]) -> tuple[Any]:
    found = Encoding(meshes).decode(encoded)
    if not isinstance(found, tuple) or len(found) != 1 or not (found[0] is None or _redistributes_nothing(found[0])):
        raise ValueError(found)
    return found


def _name(schema: Any, meshes: list[Any]) -> str:
    """Returns a name that is equal for schemas of equal results, in all ranks. The meshes that the schema refers to are
    put into `meshes`. Raises _Unnamed, also if there are too few tensors.
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
        """Returns the value as text. Raises _Unnamed."""
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
    """Returns the properties of a mesh that strategies ask for: they compare costs by its sizes, and those of ranks
    outside are 0.
    """
    takes_part = mesh.get_coordinate() is not None
    return f"{mesh.device_type} {tuple(mesh.shape)} {mesh.mesh_dim_names} {takes_part}"
