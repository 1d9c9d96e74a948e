"""CPU tensors over the bytes of CUDA tensors.

The hook library takes all emulated device memory from one range of addresses that the host can read and write. One CPU
tensor of each dtype spans the whole range. The host view of a CUDA tensor is a strided view of it: it copies nothing
and owns nothing, so torch's allocator may reuse the memory as on a GPU.

A CUDA tensor may also be a view of pinned host memory, which a GPU reads over the bus. Each such range has CPU tensors
of its own, made from its bytes when they are needed: elements may lie at any distance from its start.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..interpreter.hook_library import Hook

if TYPE_CHECKING:
    from torch import Tensor, dtype

_DTYPES = [
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex32",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]


class Layout:
    """The place and order of a tensor's elements in memory, as the hook library's functions take it."""

    __slots__ = ("address", "dtype", "item", "shape", "sizes", "strides")

    def __init__(self, tensor: Tensor) -> None:
        self.address: int = tensor.data_ptr()
        self.item: int = tensor.element_size()
        self.dtype: dtype = tensor.dtype
        self.shape = tuple(tensor.size())
        self.sizes, self.strides = list(self.shape), list(tensor.stride())

    @classmethod
    def of(cls, dtype: Any, item: int, sizes: list[int], strides: list[int]) -> Layout:
        """Makes the layout of a tensor of another rank; its address is 0."""
        layout = cls.__new__(cls)
        layout.address, layout.dtype, layout.item = 0, dtype, item
        layout.shape, layout.sizes, layout.strides = tuple(sizes), sizes, strides
        return layout

    def told(self) -> tuple[Any, int, list[int], list[int]]:
        """Returns the layout as arguments for `of`."""
        return self.dtype, self.item, self.sizes, self.strides

    def dimensions(self) -> tuple[int, Any, Any]:
        n = len(self.sizes)
        return n, (ctypes.c_int64 * n)(*self.sizes), (ctypes.c_int64 * n)(*self.strides)

    def order(self) -> list[int]:
        """The dimensions, the one with the largest stride first."""
        return sorted(range(len(self.sizes)), key=lambda dim: -self.strides[dim])


class HostRange(NamedTuple):
    """A range of memory that the host can read and write."""

    start: int
    """The address of its first element."""
    base: Tensor
    """The CPU tensor over all of it."""

    def places(self, addresses: Tensor, last: int) -> Tensor | None:
        """Returns the places in `base` of elements that none lies before the range; None if the last of them, at
        `last`, lies beyond its end.
        """
        shift = self.base.dtype.itemsize.bit_length() - 1
        if last - self.start >> shift >= self.base.numel():
            return None
        return addresses - self.start >> shift


class NoHostView(Exception):
    """Raised if a tensor's bytes cannot be seen as a CPU tensor."""


class HostViews:
    """Makes host views of CUDA tensors."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._start = 0
        self._nbytes = 0
        self._whole_range: dict[dtype, Tensor] = {}

    def _map(self) -> None:
        self._start, self._nbytes = self._hook.device_range()
        if self._nbytes:
            self._whole_range = _tensors_over(self._start, self._nbytes)

    def covers(self, address: int) -> bool:
        """Says whether the address is one of the device's memory."""
        if not self._whole_range:
            self._map()
        return 0 <= address - self._start < self._nbytes

    def range_of(self, address: int, dtype: dtype) -> HostRange | None:
        """Returns the range of memory that holds the address, the device's or pinned memory of the host's, as elements
        of the dtype; None for other dtypes and other memory.
        """
        if not self._whole_range:
            self._map()
        if 0 <= address - self._start < self._nbytes:
            base = self._whole_range.get(dtype)
            return None if base is None else HostRange(self._start, base)
        start, nbytes = self._hook.host_range(address)
        if not nbytes or dtype not in self._whole_range:
            return None
        # Elements lie at multiples of their size from this address, not from the range's start.
        skipped, item = (address - start) % dtype.itemsize, dtype.itemsize
        start, nbytes = start + skipped, (nbytes - skipped) // item * item
        return HostRange(start, _tensors_over(start, nbytes, (dtype,))[dtype]) if nbytes else None

    def view(self, tensor: Tensor) -> Tensor | None:
        """Returns the CPU tensor over the same bytes; None for other dtypes, other memory, unaligned and nested
        tensors.
        """
        if tensor.is_nested:  # each part has sizes of its own
            return None
        if not self._whole_range:
            self._map()
        address, base = tensor.data_ptr(), self._whole_range.get(tensor.dtype)
        if base is not None and tensor.numel() == 0:  # it has no bytes, and perhaps no address
            return base.new_empty(tensor.size(), device="cpu")
        if base is None:
            return None
        start = self._start
        if not 0 <= address - start < self._nbytes:
            pinned = self.range_of(address, tensor.dtype)
            if pinned is None:
                return None
            start, base = pinned
        index, rest = divmod(address - start, tensor.element_size())
        if rest:
            return None
        view = base.as_strided(tensor.size(), tensor.stride(), index)
        if tensor.is_conj():
            view = view.conj()
        return view._neg_view() if tensor.is_neg() else view


def _tensors_over(start: int, nbytes: int, dtypes: Iterable[dtype] | None = None) -> dict[dtype, Tensor]:
    """Returns a CPU tensor of each dtype over the bytes from this address on, which it does not own."""
    import torch

    window = (ctypes.c_char * nbytes).from_address(start)
    all_bytes = torch.frombuffer(window, dtype=torch.uint8)
    if dtypes is None:
        dtypes = (getattr(torch, name) for name in _DTYPES if hasattr(torch, name))
    return {one: all_bytes.view(one) for one in dtypes}


class Place:
    """The place of a tensor's elements: what is left of it if the tensor itself must not be kept alive."""

    __slots__ = ("address", "dense", "item", "nbytes", "sizes", "strides")

    def __init__(self, tensor: Tensor) -> None:
        self.address: int = tensor.data_ptr()
        self.item: int = tensor.element_size()
        numel: int = tensor.numel()
        self.dense: bool = tensor.is_contiguous() or numel <= 1
        """True if there are no gaps between the elements."""
        if self.dense:
            self.nbytes = numel * self.item
            return
        if tensor.is_nested:
            self.dense, self.address = True, tensor.untyped_storage().data_ptr()
            self.nbytes = tensor.untyped_storage().nbytes()
            return
        self.sizes, self.strides = tuple(tensor.size()), tuple(tensor.stride())
        last = sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True)) if numel else -1
        self.nbytes = (last + 1) * self.item
        """The number of bytes from the first element to the last."""
        self.dense = self.nbytes == numel * self.item and 0 not in self.strides
