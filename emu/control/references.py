"""Large tensors whose values are made when somebody reads them.

The hook library keeps for device memory what it refers to: a constant, bytes that the program once copied to the
device, or the result of a computation that this module remembers (emu/hook/sources). Nothing is computed unless the
program reads the values, or an operation that is computed needs them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .host_views import Place

if TYPE_CHECKING:
    from torch import Tensor, dtype

    from .control_tensors import ControlTensors

DEEPEST = 32
"""Computations of computations of ...: deeper ones are computed at once, so that what is remembered stays small."""
_FEW_RUNS = 1024
"""Elements in more pieces than this are remembered with the gaps between them."""


class Layout:
    """Where a tensor's elements lie, as the hook library's functions take it."""

    __slots__ = ("address", "dtype", "item", "shape", "sizes", "strides")

    def __init__(self, tensor: Tensor) -> None:
        self.address: int = tensor.data_ptr()
        self.item: int = tensor.element_size()
        self.dtype: dtype = tensor.dtype
        self.shape = tuple(tensor.size())
        self.sizes, self.strides = list(self.shape), list(tensor.stride())

    def dimensions(self) -> tuple[int, Any, Any]:
        n = len(self.sizes)
        return n, (ctypes.c_int64 * n)(*self.sizes), (ctypes.c_int64 * n)(*self.strides)

    def order(self) -> list[int]:
        """The dimensions, the one with the largest stride first."""
        return sorted(range(len(self.sizes)), key=lambda dim: -self.strides[dim])


class Snapshot:
    """The values that a tensor has now, whatever is written to it later."""

    def __init__(self, hook: Any, layout: Layout) -> None:
        """Raises LookupError if it has a value that nobody knows."""
        self._hook = hook
        self._handle = 0
        self.layout = layout
        self.span = 0
        """Elements from the first to the last, where all of these are remembered; else 0."""
        n, sizes, strides = layout.dimensions()
        if hook.data_runs(layout.item, n, sizes, strides) > _FEW_RUNS:
            pairs = zip(layout.sizes, layout.strides, strict=True)
            self.span = 1 + sum((size - 1) * stride for size, stride in pairs)
            n, sizes, strides = 1, (ctypes.c_int64 * 1)(self.span), (ctypes.c_int64 * 1)(1)
        self._handle = hook.take(layout.address, layout.item, n, sizes, strides)
        if not self._handle:
            raise LookupError
        self.depth: int = hook.taken_depth(self._handle)

    def __del__(self) -> None:
        if self._handle:
            self._hook.taken_drop(self._handle)

    def read(self) -> Tensor:
        """A CPU tensor of the same shape. Raises LookupError if the values cannot be had."""
        import torch

        layout = self.layout
        if self.span:
            values = torch.empty(self.span, dtype=layout.dtype, device="cpu")
            self._fill(values)
            return values.as_strided(layout.shape, layout.strides)
        sizes = [1 if stride == 0 else size for size, stride in zip(layout.sizes, layout.strides, strict=True)]
        order = layout.order()
        values = torch.empty([sizes[dim] for dim in order], dtype=layout.dtype, device="cpu")
        self._fill(values)
        return values.permute(inverse(order)).expand(layout.shape)

    def _fill(self, values: Tensor) -> None:
        if not self._hook.taken_read(self._handle, values.data_ptr()):
            raise LookupError

    def give(self, target: Layout) -> bool:
        """The target's elements are these values, if they lie in the same order. Its dtype is as wide."""
        if self.span or target.order() != self.layout.order() or 0 in self.layout.strides:
            return False
        n, sizes, strides = target.dimensions()
        return bool(self._hook.refer(self._handle, target.address, target.item, n, sizes, strides))


@dataclass(frozen=True, slots=True)
class _Computation:
    function: Callable[..., Tensor]
    inputs: tuple[Snapshot, ...]
    layout: Layout
    in_memory_order: bool


class References:
    """Remembers what large tensors are computed from."""

    def __init__(self, control: ControlTensors) -> None:
        self._control = control
        self._hook = control.hook
        self._computations: dict[int, _Computation] = {}
        self._last = 0
        control.hook.compute_sources(self._compute)

    def snapshot(self, tensor: Tensor) -> Snapshot | None:
        """None if it has a value that nobody knows."""
        layout = Layout(tensor)
        if not tensor.numel():
            return None
        try:
            snapshot = Snapshot(self._hook, layout)
            if snapshot.depth >= DEEPEST:
                self._control.unrecorded(snapshot.read)
                snapshot = Snapshot(self._hook, layout)
        except LookupError:
            return None
        return snapshot if snapshot.depth < DEEPEST else None

    def constant(self, target: Tensor, item: bytes) -> bool:
        """All elements have these bytes. False if the hook library cannot remember it."""
        return self._refer(Layout(target), item, 0, 0)

    def assign(self, target: Tensor, source: Tensor) -> None:
        """What `target.copy_(source)` does to the values, on one device. Of unknown ones: the target is unknown."""
        if target.dtype == source.dtype and target.is_contiguous() and source.is_contiguous():
            self._hook.data_move(target.data_ptr(), source.data_ptr(), target.numel() * target.element_size())
            return
        snapshot = self.snapshot(source)
        if snapshot is None:
            self._control.overwrite([target])
        else:
            self.assign_snapshot(target, snapshot)

    def assign_snapshot(self, target: Tensor, source: Snapshot) -> None:
        """The same with the values that the source had."""
        layout = Layout(target)
        if layout.dtype == source.layout.dtype and layout.shape == source.layout.shape and source.give(layout):
            return
        dtype, shape = layout.dtype, layout.shape
        self.computed(target, lambda values: values.expand(shape).to(dtype), (source,))

    def computed(
        self,
        target: Tensor,
        function: Callable[..., Tensor],
        inputs: Sequence[Snapshot] = (),
        *,
        in_memory_order: bool = False,
    ) -> None:
        """The target's values are `function(*inputs)`, of its shape, or its elements in the order of memory."""
        self._forget_dropped()
        layout = Layout(target)
        self._last += 1
        depth = 1 + max((snapshot.depth for snapshot in inputs), default=0)
        self._computations[self._last] = _Computation(function, tuple(inputs), layout, in_memory_order)
        if not self._refer(layout, None, self._last, depth):
            del self._computations[self._last]
            self._control.overwrite([target])

    def _refer(self, layout: Layout, item: bytes | None, number: int, depth: int) -> bool:
        n, sizes, strides = layout.dimensions()
        return bool(self._hook.refer_source(item, number, depth, layout.address, layout.item, n, sizes, strides))

    def _forget_dropped(self) -> None:
        for number in self._hook.dropped_sources():
            self._computations.pop(number, None)

    def _compute(self, number: int) -> None:
        """Called by the hook library, from any thread. Where it fails, the values count as unknown."""
        computation = self._computations.get(number)
        if computation is None:
            return
        import torch

        def values() -> Tensor:
            with torch.no_grad():
                layout = computation.layout
                made = computation.function(*[snapshot.read() for snapshot in computation.inputs]).to(layout.dtype)
                if not computation.in_memory_order:
                    made = made.expand(layout.shape).permute(layout.order())
                return made.contiguous()

        try:
            made = self._control.unrecorded(values)
        except (LookupError, RuntimeError, NotImplementedError) as error:
            if not isinstance(error, LookupError):
                self._hook.warn_once("computation", f"values cannot be computed when they are read: {error}")
            return
        self._hook.give_source(made.data_ptr(), made.numel() * made.element_size())


def inverse(order: Sequence[int]) -> list[int]:
    """The permutation that undoes this one."""
    return sorted(range(len(order)), key=lambda i: order[i])


_instances: dict[int, References] = {}


def shared(control: ControlTensors) -> References:
    """The one of these control tensors."""
    found = _instances.get(id(control))
    if found is None:
        found = _instances[id(control)] = References(control)
    return found


def dense(tensor: Tensor) -> bool:
    """Have its elements no gaps between them?"""
    return Place(tensor).dense
