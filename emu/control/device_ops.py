"""The function before the CUDA kernel of any operation whose results stay on the device.

Most calls of a training step have large tensors: the function first looks for a sign of that, and then does little more
than call the kernel. A new tensor's bytes are unknown because PyTorch's allocator has just given them out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..private.access import schema_of
from . import op_rules
from .computed_op import ComputedOp, Kernel, NumberWrapper
from .control_tensors import ASSUMED, KNOWN, UNKNOWN, ControlTensors
from .host_views import NoHostView, Place

if TYPE_CHECKING:
    from torch import Tensor


def any_op(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Computes the operation if its tensors are small."""
    op, numbers = ComputedOp(control, operation, kernel), NumberWrapper(control, operation)
    tensor_type, limit, integers = control.tensor_type, control.limit_numel, control.integers
    last = len(numbers.places) > 1 or numbers.places[:1] != (0,)
    check = op_rules.INDEX_CHECKS.get(schema_of(operation).name)

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if control.nested:
            return kernel(keyset, *numbers.wrap(args), **kwargs)
        if check is not None:
            check_indices(control, op.name, check, args)
        first = args[0] if args else None
        if isinstance(first, tensor_type):
            numel = first.numel()
            if (
                numel > control.float_limit_numel
                and (numel > limit or first.dtype not in integers)
                and not (control.any_size and control.is_small(first))
            ):
                if last:
                    args = numbers.wrap(args)
                return op.call_uncomputed(keyset, args, kwargs)
        return op.call(keyset, numbers.wrap(args), kwargs)

    return call


def number_first(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """`pow(2, tensor)` and the like. Their kernels call the operation of two tensors with a number that PyTorch has
    wrapped into a tensor on the device, which cannot be passed to Python. This does the same with a tensor of its own.
    """
    import torch

    base = schema_of(operation).name.removeprefix("aten::")
    of_tensors = getattr(torch.ops.aten, base)
    into, new = of_tensors.Tensor_Tensor_out, of_tensors.Tensor_Tensor

    def call(keyset: Any, number: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        dtype = torch.result_type(number, tensor)
        if tensor.dim() and dtype is tensor.dtype and isinstance(number, (int, float)):
            dtype = torch.float64 if isinstance(number, float) else torch.int64
        wrapped = torch.full((), number, dtype=dtype, device=tensor.device)
        return (into if "out" in kwargs else new)(wrapped, tensor, *args, **kwargs)

    return call


def searched_number(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before `searchsorted(tensor, 2)` and `bucketize(2, tensor)`, whose kernels do likewise."""
    import torch

    base = schema_of(operation).name.removeprefix("aten::")
    of_tensors, place = getattr(torch.ops.aten, base), int(base == "searchsorted")
    into, new = of_tensors.Tensor_out, of_tensors.Tensor

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        ordered = args[1 - place]
        dtype = torch.result_type(ordered, args[place])
        wrapped = torch.full((), args[place], dtype=dtype, device=ordered.device)
        return (into if "out" in kwargs else new)(*args[:place], wrapped, *args[place + 1 :], **kwargs)

    return call


def mode(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """PyTorch looks for the commonest number in what a kernel has sorted, and stops if it is not there: the kernel is
    not called.
    """
    import torch

    def outputs(keyset: Any, tensor: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        shape = torch.amax(torch.empty(tensor.shape, device="meta"), dim, keepdim).shape
        indices = torch.empty(shape, dtype=torch.int64, device=tensor.device)
        return torch.empty(shape, dtype=tensor.dtype, device=tensor.device), indices

    return any_op(control, operation, outputs)


def check_indices(control: ControlTensors, name: str, check: op_rules.IndexCheck, args: tuple[Any, ...]) -> None:
    """Checks a call's indices. Raises `device_assert` if an index is known to be out of range."""
    ignored = args[4] if check.along is op_rules.Along.CLASSES and len(args) > 4 else None
    for indices, size in _indices(check, args):
        if not control.is_small(indices) or not indices.numel():
            continue
        if indices.is_cuda:
            place = Place(indices)
            if control.state_of(place) != KNOWN or control.chosen([place]):
                continue
        least = -size if check.from_end else 0

        def out_of_range(indices: Tensor = indices, least: int = least, size: int = size) -> bool:
            values = control.host_view(indices) if indices.is_cuda else indices
            wrong = (values < least) | (values >= size)
            if ignored is not None:
                wrong &= values != ignored
            return bool(wrong.any())

        try:
            if control.unrecorded(out_of_range):
                raise op_rules.device_assert()(
                    f"an index of {name.removeprefix('aten::')} is out of range: expected {least} to {size - 1}"
                )
        except NoHostView:
            continue


def _indices(check: op_rules.IndexCheck, args: tuple[Any, ...]) -> Iterator[tuple[Tensor, int]]:
    """A call's tensors of indices, and of how many elements each chooses."""
    indexed, indices = args[0], args[check.indices]
    along = op_rules.Along
    if check.along is along.ALL:
        yield indices, indexed.numel()
    elif check.along is not along.EACH:
        dim = {along.FIRST: 0, along.ARGUMENT: args[1], along.CLASSES: int(indexed.dim() > 1)}[check.along]
        yield indices, indexed.size(dim) if indexed.dim() else 1
    else:
        dim = 0
        for one in indices:
            mask = one is not None and one.element_size() == 1
            if one is not None and not mask:
                yield one, indexed.size(dim)
            dim += one.dim() if mask else 1


def all_of(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before `all`: unknown values count as finite, and a check of that as passed."""
    call_small = any_op(control, operation, kernel)

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        small = control.is_small(args[0])
        unknown = small and control.state_of(Place(args[0])) == UNKNOWN
        result = call_small(keyset, *args, **kwargs)
        if not (unknown or not small) or not isinstance(result, control.tensor_type) or not control.is_small(result):
            return result
        if unknown or control.peek(Place(result)) == UNKNOWN:
            assume_ones(control, result)
        return result

    return call


def finite_comparison(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Comparisons of which `isfinite` consists: an unknown number equals itself, and its absolute value is not
    infinity.
    """
    call_small, tensor_type = any_op(control, operation, kernel), control.tensor_type

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        result = call_small(keyset, *args, **kwargs)
        holds = len(args) == 2 and (args[0] is args[1] or (isinstance(args[1], float) and args[1] == math.inf))
        if holds and isinstance(result, tensor_type) and control.is_small(result):
            floats = args[0].is_floating_point() and not control.is_small(args[0])
            if floats and control.peek(Place(result)) == UNKNOWN:
                assume_ones(control, result)
        return result

    return call


def assume_ones(control: ControlTensors, result: Tensor) -> None:
    """Assumes 1 for the elements that are not known."""
    import torch

    place, view = Place(result), control.unrecorded(lambda: control.host_view(result))

    def fill() -> None:
        flags = control.not_known(view)
        if flags is True:
            view.fill_(1)
            control.mark(place, ASSUMED)
        elif flags:
            view.masked_fill_(view.new_tensor(flags, dtype=torch.bool).view(view.shape), 1)
            control.mark_elements(view, flags, ASSUMED)

    control.perform(result.device.index, [], [place], fill, later=control.in_use([place]))
