"""The stand-in for gloo's process groups, which connect every member to every other: here members meet in the store.

A member without a process gives what its representative gives in its own group, at the same call. So all members of a
group need the same sequence of calls, as with gloo.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import _distributed_c10d as c10d
from torch.distributed import ReduceOp

from .dispatched import Dispatched
from .ranks import FoldedRanks, Group
from .work import Done


class _Told(int):
    """A capability of a backend: Python reads it as an attribute, c10d's C++ code finds the attribute and calls it."""

    def __call__(self) -> bool:
        return bool(self)


def _takes_python() -> bool:
    """Tells whether a backend can be written in Python, as it can since PyTorch 2.12."""
    try:
        c10d.Backend(0, 1)
    except TypeError:
        return False
    return True


BY_METHODS = _takes_python()
"""True if c10d calls a stand-in's methods. Else its operators are taken, see `dispatched`."""


class _Member:
    """The place of a member, in place of c10d's backend."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size


_BASE: Any = c10d.Backend if BY_METHODS else _Member


class StandIn(_BASE):
    """One member of a group. Results are written when the work is waited for."""

    ranks: FoldedRanks
    supports_splitting: Any = _Told(True)
    supports_coalescing: Any = _Told(False)
    _supports_time_estimate: Any = _Told(False)
    supports_shrinking: Any = _Told(False)
    supports_reconfigure: Any = _Told(False)
    supports_window: Any = _Told(False)

    def __init__(self, store: Any, rank: int, size: int, *_: Any, **__: Any) -> None:
        super().__init__(rank, size)
        group = self.ranks.making
        if group is None or len(group.members) != size:
            raise RuntimeError(
                "phantora-async --fold: a gloo group that torch.distributed.new_group does not make has unknown members"
            )
        self._group = group
        self._calls = 0
        self._sent: Counter[tuple[int, int, int]] = Counter()
        if BY_METHODS:
            self._options = c10d.Backend.Options("gloo")
            self._options.global_ranks_in_group = list(group.members)

    @classmethod
    def beside(cls, real: Any, ranks: FoldedRanks, dispatched: Dispatched) -> type:
        """Returns the class that takes the place of the real one, with what that has besides."""
        more = {name: value for name, value in vars(real).items() if name in ("_Options", "create_device")}
        more |= {name: getattr(real, name) for name in ("create_default_device",) if hasattr(real, name)}
        if BY_METHODS:
            return type("ProcessGroupGloo", (cls,), more | {"ranks": ranks})
        return dispatched.backends(real, type("StandIn", (cls,), {"ranks": ranks}))

    @property
    def options(self) -> Any:
        return self._options

    def getBackendName(self) -> str:
        return "gloo"

    def name(self) -> str:
        return "gloo"

    def eager_connect_single_device(self, device: Any) -> None:
        """Does nothing, as there is nothing to connect."""

    def split(self, store: Any, places: Sequence[int], options: Any) -> StandIn | None:
        """Returns the group of the members at these places, as `torch.distributed.split_group` makes it."""
        return type(self)(store, places.index(self.rank()), len(places)) if self.rank() in places else None

    # ---- meeting in the store --------------------------------------------------------------------------------------

    def _key(self, group: Group, *parts: int) -> str:
        return f"folded {_digest(group.members)} {group.number}: {' '.join(map(str, parts))}"

    def _meet(self, data: bytes | None, read: Callable[[Callable[[int], bytes]], None]) -> Done:
        """Gives this member's part of the next call; `read` is called with a function that waits for a member's."""
        call = self._calls
        self._calls += 1
        store, mine = self.ranks.store, self._group
        if data is not None:
            store.set(self._key(mine, call, self.rank()), data)
        seen: dict[str, bytes] = {}

        def given(place: int) -> bytes:
            group, its_place = self.ranks.stand_in(mine, place)
            key = self._key(group, call, its_place)
            if key not in seen:
                seen[key] = store.get(key)
            return seen[key]

        return Done(lambda: read(given))

    def _all(self, data: bytes, read: Callable[[list[bytes]], None]) -> Done:
        return self._meet(data, lambda given: read([given(place) for place in range(self.size())]))

    # ---- collectives -----------------------------------------------------------------------------------------------

    def barrier(self, *_: Any) -> Done:
        return self._all(b"", lambda parts: None)

    def allreduce(self, tensors: Sequence[Tensor], options: Any = None) -> Done:
        op = _op(options)
        data = [_bytes(tensor) for tensor in tensors]

        def read(parts: list[bytes]) -> None:
            start = 0
            for tensor, one in zip(tensors, data, strict=True):
                _fill(tensor, _reduced([part[start : start + len(one)] for part in parts], tensor.dtype, op))
                start += len(one)

        return self._all(b"".join(data), read)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Sequence[Tensor], options: Any) -> Done:
        (tensor,) = tensors

        def read(parts: list[bytes]) -> None:
            if options.rootRank == self.rank():
                _fill(tensor, _reduced(parts, tensor.dtype, _op(options)))

        return self._all(_bytes(tensor), read)

    def broadcast(self, tensors: Sequence[Tensor], options: Any) -> Done:
        (tensor,) = tensors
        root = options.rootRank
        data = _bytes(tensor) if root == self.rank() or self._plays(root) else None
        return self._meet(data, lambda given: _fill(tensor, given(root)) if root != self.rank() else None)

    def _plays(self, place: int) -> bool:
        """Tells whether another rank looks for that member's part here."""
        return self.ranks.folding.representative(self._group.members[place]) == self.ranks.rank

    def allgather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], options: Any = None) -> Done:
        (into,), (tensor,) = outputs, inputs
        return self._all(_bytes(tensor), lambda parts: _fill_all(into, parts))

    def _allgather_base(self, output: Tensor, tensor: Tensor, options: Any = None) -> Done:
        return self._all(_bytes(tensor), lambda parts: _fill(output, b"".join(parts)))

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, options: Any = None) -> Done:
        return Done.of_all([self._allgather_base(*pair) for pair in zip(outputs, inputs, strict=True)])

    def allgather_coalesced(self, outputs: Any, inputs: Sequence[Tensor], options: Any = None) -> Done:
        sizes = [len(_bytes(tensor)) for tensor in inputs]

        def read(parts: list[bytes]) -> None:
            for place, part in enumerate(parts):
                start = 0
                for number, nbytes in enumerate(sizes):
                    _fill(outputs[place][number], part[start : start + nbytes])
                    start += nbytes

        return self._all(b"".join(map(_bytes, inputs)), read)

    def gather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], options: Any) -> Done:
        (tensor,) = inputs

        def read(given: Callable[[int], bytes]) -> None:
            if options.rootRank == self.rank():
                _fill_all(outputs[0], [given(place) for place in range(self.size())])

        return self._meet(_bytes(tensor), read)

    def gather_single(self, output: Tensor | None, tensor: Tensor, options: Any) -> Done:
        return self.gather([] if output is None else [output.chunk(self.size())], [tensor], options)

    def scatter(self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], options: Any) -> Done:
        (tensor,) = outputs
        data = b"".join(map(_bytes, inputs[0])) if inputs else None
        return self._meet(data, lambda given: _fill(tensor, _part(given(options.rootRank), tensor, self.rank())))

    def reduce_scatter(
        self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], options: Any = None
    ) -> Done:
        (tensor,), (parts_of_mine,) = outputs, inputs
        return self._reduce_scatter(tensor, b"".join(map(_bytes, parts_of_mine)), options)

    def _reduce_scatter_base(self, output: Tensor, tensor: Tensor, options: Any = None) -> Done:
        return self._reduce_scatter(output, _bytes(tensor), options)

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, options: Any = None) -> Done:
        pairs = zip(outputs, inputs, strict=True)
        return Done.of_all([self._reduce_scatter_base(*pair, options) for pair in pairs])

    def _reduce_scatter(self, tensor: Tensor, data: bytes, options: Any) -> Done:
        def read(parts: list[bytes]) -> None:
            mine = [_part(part, tensor, self.rank()) for part in parts]
            _fill(tensor, _reduced(mine, tensor.dtype, _op(options)))

        return self._all(data, read)

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], options: Any = None) -> Done:
        if len({tensor.numel() for tensor in (*outputs, *inputs)}) > 1:
            raise RuntimeError(
                "phantora-async --fold: all_to_all with parts of different sizes is not played with gloo"
            )

        def read(parts: list[bytes]) -> None:
            for place, (tensor, part) in enumerate(zip(outputs, parts, strict=True)):
                _fill(tensor, _part(part, tensor, self._place_for(place)))

        return self._all(b"".join(map(_bytes, inputs)), read)

    def alltoall_base(
        self, output: Tensor, tensor: Tensor, out_sizes: list[int], in_sizes: list[int], options: Any = None
    ) -> Done:
        if len({*out_sizes, *in_sizes}) > 1:
            raise RuntimeError(
                "phantora-async --fold: all_to_all with parts of different sizes is not played with gloo"
            )
        return self.alltoall(output.chunk(self.size()), tensor.chunk(self.size()), options)

    # Names that PyTorch 2.15 gives to the same calls.
    all_gather_single = _allgather_base
    reduce_scatter_single = _reduce_scatter_base
    all_to_all_single = alltoall_base
    gather_into_tensor = gather_single

    def _place_for(self, place: int) -> int:
        """Returns the place of the part that the member at this place has for this one."""
        member = self._group.members[place]
        return self.rank() if member in self.ranks.live else self.ranks.place_seen_from(self._group, member)

    # ---- messages --------------------------------------------------------------------------------------------------

    def send(self, tensors: Sequence[Tensor], to: int, tag: int) -> Done:
        (tensor,) = tensors
        number = self._next(self.rank(), to, tag)
        self.ranks.store.set(self._key(self._group, self.rank(), to, tag, number, -1), _bytes(tensor))
        return Done(lambda: None)

    def recv(self, tensors: Sequence[Tensor], place: int, tag: int) -> Done:
        (tensor,) = tensors
        number = self._next(place, self.rank(), tag)
        group, its_place = self.ranks.stand_in(self._group, place)
        key = self._key(group, its_place, self._place_for(place), tag, number, -1)
        return Done(lambda: _fill(tensor, self.ranks.store.get(key)))

    def _next(self, sender: int, receiver: int, tag: int) -> int:
        number = self._sent[sender, receiver, tag]
        self._sent[sender, receiver, tag] += 1
        return number


@functools.cache
def _digest(members: tuple[int, ...]) -> str:
    return hashlib.blake2b(repr(members).encode(), digest_size=16).hexdigest()


def _op(options: Any) -> Any:
    op = getattr(options, "reduceOp", ReduceOp.SUM)
    return op.op if hasattr(op, "op") else op


def _bytes(tensor: Tensor) -> bytes:
    one = tensor.detach().contiguous()
    return ctypes.string_at(one.data_ptr(), one.numel() * one.element_size()) if one.numel() else b""


def _fill(tensor: Tensor, data: bytes) -> None:
    if len(data) != tensor.numel() * tensor.element_size():
        raise RuntimeError(f"{len(data)} bytes for a tensor of {tensor.numel()} elements of {tensor.dtype}")
    if tensor.is_contiguous():
        ctypes.memmove(tensor.data_ptr(), data, len(data))
    elif data:
        tensor.detach().copy_(torch.frombuffer(bytearray(data), dtype=tensor.dtype).view(tensor.shape))


def _fill_all(tensors: Sequence[Tensor], parts: Sequence[bytes]) -> None:
    for tensor, part in zip(tensors, parts, strict=True):
        _fill(tensor, part)


def _part(data: bytes, tensor: Tensor, place: int) -> bytes:
    nbytes = tensor.numel() * tensor.element_size()
    return data[place * nbytes : (place + 1) * nbytes]


_REDUCE: dict[Any, Callable[[Tensor, Tensor], Tensor]] = {
    ReduceOp.SUM: torch.add,
    ReduceOp.AVG: torch.add,
    ReduceOp.PRODUCT: torch.mul,
    ReduceOp.MIN: torch.minimum,
    ReduceOp.MAX: torch.maximum,
    ReduceOp.BAND: torch.bitwise_and,
    ReduceOp.BOR: torch.bitwise_or,
    ReduceOp.BXOR: torch.bitwise_xor,
}


def _reduced(parts: Sequence[bytes], dtype: torch.dtype, op: Any) -> bytes:
    """Reduces the parts element by element, in the order of ranks."""
    if not parts[0]:
        return b""
    combine = next(function for known, function in _REDUCE.items() if known == op)
    total = torch.frombuffer(bytearray(parts[0]), dtype=dtype)
    for part in parts[1:]:
        total = combine(total, torch.frombuffer(bytearray(part), dtype=dtype))
    if op == ReduceOp.AVG:
        total = torch.div(total, len(parts), rounding_mode=None if dtype.is_floating_point else "trunc").to(dtype)
    return _bytes(total)
