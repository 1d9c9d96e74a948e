"""Kernels that bring device data to the program: scalars, copies, sizes that depend on data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .alias import span
from .control_tensors import ControlTensors, Kernel, NoTwin
from .kernels import Beside, tensors_of

if TYPE_CHECKING:
    from torch import Tensor


def item(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """`tensor.item()`: what nobody computed reads as 0."""

    def call(keyset: Any, tensor: Tensor) -> Any:
        value = kernel(keyset, tensor)  # waits for the GPU, and for bytes on their way
        if control.hook.data_known(*span(tensor)):
            return value
        control.unmodelled_read(tensor)
        return value if isinstance(value, bool) else type(value)(0)  # all() of what nobody computed is True

    return call


def copy(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """The hook library copies bytes; what is left is what a kernel does: other dtypes, other strides."""
    limit = control.limit_numel
    beside = Beside(control, operation, kernel)

    def call(keyset: Any, target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        if target.numel() > limit or source.numel() > limit:
            return kernel(keyset, target, source, non_blocking)
        bytewise = target.dtype == source.dtype and target.is_contiguous() and source.is_contiguous()
        if not target.is_cuda:
            unknown = bytewise and source.numel() > 0 and not _known_or_pending(control, source)
            result = kernel(keyset, target, source, non_blocking)
            if unknown:
                control.unmodelled_read(source)
                control.aside(target.zero_)
            return result
        if not source.is_cuda or bytewise:
            return kernel(keyset, target, source, non_blocking)
        result = kernel(keyset, target, source, non_blocking)
        try:
            compute = beside._on_twins((target, source), {}, [target])
        except NoTwin:
            control.mark([target], known=False)
        else:
            control.when_known([source], [target], compute)
        return result

    return call


def _known_or_pending(control: ControlTensors, tensor: Tensor) -> bool:
    where = span(tensor)
    return bool(control.hook.data_known(*where) or control.hook.data_pending(*where))


def _wait(control: ControlTensors, tensors: list[Tensor]) -> bool:
    """Waits for the GPU, as the real operation does to learn its output's size. Are the inputs known?"""
    import torch

    torch.cuda.current_stream(tensors[0].device).synchronize()
    control.wait(tensors)
    return control.known(tensors)


def _on_device(
    control: ControlTensors, value: Tensor, like: Tensor, *, transposed: bool = False, known: bool
) -> Tensor:
    """`value`, computed on the CPU, as a tensor in `like`'s device memory."""
    import torch

    shape = tuple(reversed(value.shape)) if transposed else value.shape
    output = torch.empty(shape, dtype=value.dtype, device=like.device)
    if transposed:
        output = output.t()
    if output.numel():
        twin = control.twin(output)
        if twin is None:
            raise NoTwin
        control.wait([output])
        control.aside(lambda: twin.copy_(value))
        control.mark([output], known=known)
    return output


def nonzero(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    def call(keyset: Any, tensor: Tensor) -> Tensor:
        small = control.small((tensor,))
        twin = control.twin(tensor) if small else None
        if not small or twin is None:
            return kernel(keyset, tensor)
        known = _wait(control, small)
        if not known:
            control.unmodelled_read(tensor)
        value = control.aside(twin.nonzero if known else lambda: twin.new_zeros(twin.shape).nonzero())
        return _on_device(control, value, tensor, transposed=value.dim() == 2, known=True)

    return call


def equal(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    def call(keyset: Any, one: Tensor, other: Tensor) -> bool:
        small = control.small((one, other))
        if not small or one.shape != other.shape:
            return kernel(keyset, one, other)  # type: ignore[no-any-return]
        known = _wait(control, small)
        if not known:
            control.unmodelled_read(one)
            return True  # tensors that nobody computed do not differ
        return bool(control.aside(lambda: operation(control.twins(one), control.twins(other))))

    return call


def unique(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    sorts = operation._schema.name == "aten::_unique2"

    def call(keyset: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        small = control.small((tensor,))
        twin = control.twin(tensor) if small else None
        if not small or twin is None:
            return kernel(keyset, tensor, *args, **kwargs)  # type: ignore[no-any-return]
        known = _wait(control, small)
        if not known:
            control.unmodelled_read(tensor)
            twin = twin.new_zeros(twin.shape)
        if sorts:  # the GPU's always does
            args, kwargs = (True, *args[1:]), {name: value for name, value in kwargs.items() if name != "sorted"}
        values = control.aside(lambda: operation(twin, *args, **kwargs))
        return tuple(_on_device(control, value, tensor, known=True) for value in tensors_of(values))

    return call
