"""Functions before the CUDA kernels of operations whose results stay on the device.

Each maker takes an operation and its CUDA kernel and returns the function that the dispatcher calls instead. Most calls
of a training step have large tensors: every function first looks for a sign of that, and then only calls the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .computed_op import ONES, ZEROS, ComputedOp, Kernel, NumberWrapper, as_tuple
from .control_tensors import ControlTensors
from .host_views import NoHostView

if TYPE_CHECKING:
    from torch import Tensor


def pointwise(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """The outputs are at least as large as the first tensor: if that is large, so are they."""
    op, tensor_type, limit = ComputedOp(control, operation, kernel), control.tensor_type, control.limit_numel
    numbers = NumberWrapper(control, operation)

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        first = args[0]
        if type(first) is not tensor_type or type(args[-1]) is not tensor_type:
            args = numbers.wrap(args)
        if isinstance(first, tensor_type) and first.numel() > limit:
            return kernel(keyset, *args, **kwargs)
        return op.call(keyset, args, kwargs)

    return call


def shrinking(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """A small output may come from large inputs: then it is unknown."""
    # Unknown floats are treated as finite: `all` of a check for finite numbers is True.
    placeholders = ONES if operation._schema.name == "aten::all" else ZEROS
    op, numbers = ComputedOp(control, operation, kernel, placeholders), NumberWrapper(control, operation)
    tensor_type, limit, forget = control.tensor_type, control.limit_numel, control.hook.data_forget

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        first = args[0]
        if type(first) is tensor_type and first.numel() > limit:
            result = kernel(keyset, *args, **kwargs)
            if type(result) is tensor_type and result.is_floating_point():
                if (numel := result.numel()) <= limit and result.is_cuda:
                    forget(result.data_ptr(), numel * result.element_size())
                return result
            op.give_up(as_tuple(result))
            return result
        return op.call(keyset, numbers.wrap(args), kwargs)

    return call


def fill(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """The tensor that it writes to is not read."""
    op, tensor_type, limit = ComputedOp(control, operation, kernel), control.tensor_type, control.limit_numel
    in_place = not op.out_arguments and op.mutable

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        first = args[0]
        if isinstance(first, tensor_type) and first.numel() > limit:
            return kernel(keyset, *args, **kwargs)
        return op.call(keyset, args, kwargs, reads_first=not in_place)

    return call


def comparison(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Unknown floats are treated as finite, and compare as 0."""
    op, tensor_type, limit = ComputedOp(control, operation, kernel), control.tensor_type, control.limit_numel
    pointwise_call, numbers = pointwise(control, operation, kernel), NumberWrapper(control, operation)

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        first = args[0]
        if not isinstance(first, tensor_type) or first.numel() > limit or not _has_float(args, tensor_type):
            return pointwise_call(keyset, *args, **kwargs)
        checks_finite = _checks_finite(args)
        args = numbers.wrap(args)
        inputs = control.small(args)
        if inputs is None or control.pending(inputs) or control.known(inputs):
            return op.call(keyset, args, kwargs)
        result = kernel(keyset, *args, **kwargs)
        outputs = control.small(as_tuple(result))
        if outputs and not control.pending(outputs):
            control.unrecorded(lambda: compare_zeros(args, outputs))
            control.mark(outputs, known=checks_finite)
        return result

    def compare_zeros(args: tuple[Any, ...], outputs: Iterable[Tensor]) -> None:
        zeros = [
            value.new_zeros(value.shape, device="cpu") if isinstance(value, tensor_type) else value for value in args
        ]
        for output in outputs:
            view = control.host_view(output)
            if view is not None:
                if op.out_arguments:
                    operation(*zeros, out=view)
                else:
                    view.copy_(operation(*zeros))

    return call


def _has_float(args: tuple[Any, ...], tensor_type: type[Tensor]) -> bool:
    return any(isinstance(value, tensor_type) and value.is_floating_point() for value in args)


def _checks_finite(args: tuple[Any, ...]) -> bool:
    """isnan(x), x != x, abs(x) == inf: for all finite numbers the answer is the same."""
    if len(args) < 2 or args[0] is args[1]:
        return True
    other = args[1]
    return isinstance(other, float) and not math.isfinite(other)


def random(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Integers drawn on the device. They are not those that a GPU would draw, but in the range asked for and the same
    in every run.
    """
    import torch

    op, generators = ComputedOp(control, operation, kernel), list[Any]()

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        result = kernel(keyset, *args, **kwargs)
        if result.is_floating_point() or (outputs := control.small((result,))) is None:
            return result
        if not generators:
            generators.append(torch.Generator().manual_seed(torch.initial_seed() % 2**63))
        options = {**kwargs, "generator": generators[0]}
        if op.out_arguments:
            args = tuple(value for value in args if not isinstance(value, torch.Generator))
        try:
            compute = op.on_host_views(args, options, outputs)
        except NoHostView:
            return result
        control.compute_when_arrived([], outputs, compute)
        return result

    return call


def list_of_floats(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """The results are floating-point scalars, most often in one allocation; they are not computed."""

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        results = kernel(keyset, *args, **kwargs)
        if results:
            first, last = results[0].data_ptr(), results[-1].data_ptr()
            if 0 <= last - first <= len(results) * 16:
                control.hook.data_forget(first, last - first + results[-1].element_size())
            else:
                control.mark(results, known=False)
        return results

    return call
