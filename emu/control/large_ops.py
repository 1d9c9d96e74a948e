"""Functions before the CUDA kernels of operations that fill, move or scale tensors: large results have values, too.

What becomes of parameters that are initialised or loaded on the device is remembered, and computed when the values are
read (`references`). Other operations on large tensors, above all those of a training step, give unknown values.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from ..private.access import schema_of
from . import device_ops, host_reads
from .computed_op import Kernel, NumberWrapper
from .control_tensors import KNOWN, ControlTensors
from .host_views import Layout, NoHostView, Place
from .references import Recipe, shared

if TYPE_CHECKING:
    from torch import Tensor

_NUMBERS = frozenset((int, float, bool))


def fill(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before `fill_` and `zero_`."""
    import torch

    inner, references = device_ops.any_op(control, operation, kernel), shared(control)
    items: dict[tuple[Any, Any, type], bytes] = {}

    def item_of(value: Any, tensor: Tensor) -> bytes | None:
        if isinstance(value, torch.Tensor):
            if value.is_cuda and control.state_of(Place(value)) != KNOWN:
                return None
            try:
                value = control.unrecorded(lambda: (control.host_view(value) if value.is_cuda else value).item())
            except NoHostView:
                return None
        key = (value, tensor.dtype, type(value))
        found = items.get(key)
        if found is None:
            one = control.unrecorded(lambda: torch.full((1,), value, dtype=tensor.dtype, device="cpu"))
            if len(items) > 256:
                items.clear()
            found = items[key] = ctypes.string_at(one.data_ptr(), one.element_size())
        return found

    def call(keyset: Any, tensor: Tensor, *value: Any, **kwargs: Any) -> Any:
        if control.is_small(tensor) or control.capturing():
            return inner(keyset, tensor, *value, **kwargs)
        item = item_of(value[0] if value else kwargs.get("value", 0), tensor)
        result = kernel(keyset, tensor, *value, **kwargs)
        if item is None or not references.constant(tensor, item):
            control.overwrite([tensor])
        return result

    return call


def copy(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before `copy_` on the device, with another dtype or other strides: the hook library does not
    see what is copied.
    """
    inner, references = host_reads.copy(control, operation, kernel), shared(control)

    def call(keyset: Any, target: Tensor, source: Tensor, non_blocking: bool = False) -> Any:
        if not (target.is_cuda and source.is_cuda) or control.is_small(target) or control.capturing():
            return inner(keyset, target, source, non_blocking)
        if target.dtype == source.dtype and target.is_contiguous() and source.is_contiguous():
            return inner(keyset, target, source, non_blocking)
        if target.numel() <= control.limit_numel and target.dtype in control.integers:
            return inner(keyset, target, source, non_blocking)
        values = references.values_of(source)
        result = kernel(keyset, target, source, non_blocking)
        if _undefined(target, source):
            control.overwrite([target])
        else:
            references.assign_values(target, values)
        return result

    return call


def _undefined(target: Tensor, source: Tensor) -> bool:
    """Views that are conjugated or negated when they are read."""
    return target.is_conj() or source.is_conj() or target.is_neg() or source.is_neg()


def concatenation(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before `cat`, also into a given tensor."""
    inner, references = device_ops.any_op(control, operation, kernel), shared(control)

    def call(keyset: Any, tensors: Any, dim: int = 0, **kwargs: Any) -> Any:
        result = inner(keyset, tensors, dim, **kwargs)
        if not control.is_small(result) and not control.capturing():
            control.unrecorded(lambda: assign_all(tensors, dim, result))
        return result

    def assign_all(tensors: Any, dim: int, result: Tensor) -> None:
        at = 0
        for tensor in tensors:
            if tensor.dim() == 1 and not tensor.numel() and result.dim() > 1:
                continue
            size = tensor.size(dim)
            references.assign(_narrow(result, dim, at, size), tensor)
            at += size

    return call


def _narrow(tensor: Tensor, dim: int, start: int, size: int) -> Tensor:
    import torch

    dim %= tensor.dim()
    sizes, strides = list(tensor.size()), tensor.stride()
    sizes[dim] = size
    view: Tensor = torch.as_strided(tensor, sizes, strides, tensor.storage_offset() + start * strides[dim])
    return view


def split_copy(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before `split_with_sizes_copy`."""
    inner, references = device_ops.any_op(control, operation, kernel), shared(control)

    def call(keyset: Any, tensor: Tensor, sizes: Any, dim: int = 0, **kwargs: Any) -> Any:
        large = not control.is_small(tensor) and not control.capturing()
        result = inner(keyset, tensor, sizes, dim, **kwargs)
        if large:
            outputs = kwargs.get("out", result)
            control.unrecorded(lambda: assign_all(tensor, sizes, dim, outputs))
        return result

    def assign_all(tensor: Tensor, sizes: Any, dim: int, outputs: Any) -> None:
        at = 0
        for size, output in zip(sizes, outputs, strict=True):
            part = _narrow(tensor, dim, at, size)
            references.assign(output, part if output.shape == part.shape else part.reshape(output.shape))
            at += size

    return call


def list_copy(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before `_foreach_copy_`."""
    inner, references = device_ops.any_op(control, operation, kernel), shared(control)

    def call(keyset: Any, targets: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        if all(map(control.is_small, targets)) or control.capturing():
            return inner(keyset, targets, sources, *args, **kwargs)
        pairs = list(zip(targets, sources, strict=True))
        plain = [
            t.dtype == s.dtype and s.is_cuda and t.is_contiguous() and s.is_contiguous() and t.shape == s.shape
            for t, s in pairs
        ]
        values = [
            references.values_of(source) if source.is_cuda and not simple else None
            for source, simple in zip(sources, plain, strict=True)
        ]
        result = kernel(keyset, targets, sources, *args, **kwargs)
        for (target, source), simple, value in zip(pairs, plain, values, strict=True):
            if simple:
                references.assign(target, source)
            elif value is not None:
                references.assign_values(target, value)
            # else the source is on the host: the kernel has called `copy_`
        return result

    return call


def list_zero(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before `_foreach_zero_`."""
    inner, references = device_ops.any_op(control, operation, kernel), shared(control)

    def call(keyset: Any, tensors: Any) -> Any:
        result = inner(keyset, tensors)
        if not all(map(control.is_small, tensors)) and not control.capturing():
            for tensor in tensors:
                references.constant(tensor, bytes(tensor.element_size()))
        return result

    return call


def elementwise(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """An operation on one tensor, and numbers."""
    inner, references = device_ops.any_op(control, operation, kernel), shared(control)
    in_place, name = schema_of(operation).name.endswith("_"), str(operation)
    numbers = NumberWrapper(control, operation)
    references.kinds[name] = lambda layout, *values: operation(values[-1].clone(), *values[:-1])

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs or (len(args) > 1 and type(args[1]) not in _NUMBERS and args[1] is not None):
            return inner(keyset, *args, **kwargs)
        tensor, rest = args[0], args[1:]
        if not isinstance(tensor, control.tensor_type) or control.is_small(tensor) or control.capturing():
            return inner(keyset, *args)
        values = references.values_of(tensor)
        result = kernel(keyset, *numbers.wrap(args))
        references.computed(tensor if in_place else result, Recipe(name, rest), values)
        return result

    return call


def numbered(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before `arange` and the like, whose values follow from numbers. They have an argument
    `out`."""
    import torch

    inner, references, name = device_ops.any_op(control, operation, kernel), shared(control), str(operation)

    def made(layout: Layout, *args: Any) -> Any:
        return operation(*args, out=torch.empty(layout.shape, dtype=layout.dtype, device="cpu"))

    references.kinds[name] = made

    def call(keyset: Any, *args: Any, out: Tensor) -> Any:
        result = inner(keyset, *args, out=out)
        if not control.is_small(out) and not control.capturing():
            references.computed(out, Recipe(name, args))
        return result

    return call


_ELEMENTWISE = """
mul.Tensor mul_.Tensor div.Tensor div_.Tensor add.Tensor add_.Tensor sub.Tensor sub_.Tensor neg neg_ erfinv erfinv_
clamp clamp_ clamp_min clamp_min_ clamp_max clamp_max_ exp exp_ log log_ sqrt sqrt_ tanh tanh_ tril tril_ triu triu_
pow.Tensor_Scalar pow_.Scalar abs abs_ reciprocal reciprocal_
"""
OF_LARGE_TENSORS = {
    "aten::fill_.Scalar": fill,
    "aten::fill_.Tensor": fill,
    "aten::zero_": fill,
    "aten::copy_": copy,
    "aten::cat": concatenation,
    "aten::cat.out": concatenation,
    "aten::split_with_sizes_copy": split_copy,
    "aten::split_with_sizes_copy.out": split_copy,
    "aten::_foreach_copy_": list_copy,
    "aten::_foreach_zero_": list_zero,
    **dict.fromkeys(
        (f"aten::{name}" for name in ("arange.start_out", "linspace.out", "logspace.out", "eye.out", "eye.m_out")),
        numbered,
    ),
    **dict.fromkeys((f"aten::{name}" for name in _ELEMENTWISE.split()), elementwise),
}
"""For each operation, by its name: what makes the function before its kernel."""
