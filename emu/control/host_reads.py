"""Functions before the CUDA kernels of operations that bring device data to the program.

These are scalars, copies, and operations whose output's size depends on data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .computed_op import ComputedOp, Kernel, as_tuple
from .control_tensors import ControlTensors
from .host_views import NoHostView, span

if TYPE_CHECKING:
    from torch import Tensor


def item(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """`tensor.item()`: an unknown number reads as 0, an unknown bool as its placeholder."""

    def call(keyset: Any, tensor: Tensor) -> Any:
        value = kernel(keyset, tensor)  # waits for the GPU, and for bytes that have yet to arrive
        if control.hook.data_known(*span(tensor)):
            return value
        control.warn_of_unknown_read(tensor)
        return value if isinstance(value, bool) else type(value)(0)

    return call


def copy(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """The hook library copies bytes. A kernel would convert dtypes and strides; that is computed here."""
    limit = control.limit_numel
    op = ComputedOp(control, operation, kernel)

    def call(keyset: Any, target: Tensor, source: Tensor, non_blocking: bool = False) -> Any:
        if target.numel() > limit or source.numel() > limit:
            return kernel(keyset, target, source, non_blocking)
        if source.is_cuda:
            control.use([source])
        copies_bytes = target.dtype == source.dtype and target.is_contiguous() and source.is_contiguous()
        if not target.is_cuda:
            unknown = copies_bytes and source.numel() > 0 and not _known_or_pending(control, source)
            result = kernel(keyset, target, source, non_blocking)
            if unknown:
                control.warn_of_unknown_read(source)
                control.unrecorded(target.zero_)
            return result
        if not source.is_cuda or copies_bytes:
            return kernel(keyset, target, source, non_blocking)
        result = kernel(keyset, target, source, non_blocking)
        try:
            compute = op.on_host_views((target, source), {}, [target])
        except NoHostView:
            control.mark([target], known=False)
        else:
            control.compute_when_arrived([source], [target], compute)
        return result

    return call


def _known_or_pending(control: ControlTensors, tensor: Tensor) -> bool:
    where = span(tensor)
    return bool(control.hook.data_pending(*where) or control.hook.data_known(*where))


def _wait(control: ControlTensors, tensors: list[Tensor]) -> bool:
    """Waits for the GPU, as the real operation does before it knows its output's size. Returns whether the inputs are
    known.
    """
    import torch

    control.use(tensors)
    torch.cuda.current_stream(tensors[0].device).synchronize()
    control.wait(tensors)
    return control.known(tensors)


def _host_view(control: ControlTensors, tensor: Tensor) -> Tensor | None:
    """Of a control tensor; None if it is too large, or has no host view."""
    if not control.small((tensor,)):
        return None
    view: Tensor | None = control.unrecorded(lambda: control.host_view(tensor))
    return view


def _to_device(control: ControlTensors, value: Tensor, like: Tensor, *, transposed: bool = False) -> Tensor:
    """`value`, computed on the CPU, as a known tensor in the memory of `like`'s device. Raises NoHostView."""
    import torch

    shape = tuple(reversed(value.shape)) if transposed else value.shape
    output = torch.empty(shape, dtype=value.dtype, device=like.device)
    if transposed:
        output = output.t()
    if output.numel():
        view = control.unrecorded(lambda: control.host_view(output))
        if view is None:
            raise NoHostView
        control.wait([output])
        control.unrecorded(lambda: view.copy_(value))
        control.mark([output], known=True)
    return output


def nonzero(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """An unknown tensor counts as zeros."""

    def call(keyset: Any, tensor: Tensor) -> Any:
        view = _host_view(control, tensor)
        if view is None:
            return kernel(keyset, tensor)
        known = _wait(control, [tensor])
        if not known:
            control.warn_of_unknown_read(tensor)
        value = control.unrecorded(view.nonzero if known else lambda: view.new_zeros(view.shape).nonzero())
        return _to_device(control, value, tensor, transposed=value.dim() == 2)

    return call


def equal(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Unknown tensors count as equal."""

    def call(keyset: Any, one: Tensor, other: Tensor) -> Any:
        small = control.small((one, other))
        if not small or one.shape != other.shape:
            return kernel(keyset, one, other)
        known = _wait(control, small)
        if not known:
            control.warn_of_unknown_read(one)
            return True
        return bool(control.unrecorded(lambda: operation(control.with_host_views(one), control.with_host_views(other))))

    return call


def unique(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """An unknown tensor counts as zeros."""
    sorts = operation._schema.name == "aten::_unique2"

    def call(keyset: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        view = _host_view(control, tensor)
        if view is None:
            return kernel(keyset, tensor, *args, **kwargs)
        known = _wait(control, [tensor])
        if not known:
            control.warn_of_unknown_read(tensor)
            view = view.new_zeros(view.shape)
        if sorts:  # the GPU's kernel always does
            args, kwargs = (True, *args[1:]), {name: value for name, value in kwargs.items() if name != "sorted"}
        values = control.unrecorded(lambda: operation(view, *args, **kwargs))
        return tuple(_to_device(control, value, tensor) for value in as_tuple(values))

    return call
