"""Functions before the CUDA kernels of operations that bring device data to the program.

These are scalars, copies and comparisons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import op_rules, read_warnings, references
from .computed_op import ComputedOp, Kernel
from .control_tensors import ASSUMED, KNOWN, UNKNOWN, ControlTensors
from .host_views import NoHostView, Place

if TYPE_CHECKING:
    from torch import Tensor


def item(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before `tensor.item()`: an unknown number reads as 0, an unknown bool as False, unless
    `--value` states another one.
    """
    import torch

    def call(keyset: Any, tensor: Tensor) -> Any:
        if control.alone.on:
            return kernel(keyset, tensor)
        control.use([tensor])
        control.at_read(tensor)
        value = kernel(keyset, tensor)  # waits for the GPU, and for bytes that have yet to arrive
        place = Place(tensor)
        state = control.state_of(place)
        reads = control.reads
        chosen = state == KNOWN and control.chosen([place])
        if state == KNOWN and not chosen:
            if reads.stated:
                reads.computed()
            return value
        stated = reads.stated_value(tensor)
        if stated is None and chosen:
            read_warnings.of_choice(control)
            return value
        if stated is None:
            read_warnings.of_unknown(control, tensor, state)
        else:
            value = control.unrecorded(lambda: torch.tensor(stated, dtype=tensor.dtype, device="cpu").item())
        reads.note(tensor, value, stated=stated is not None)
        return value

    return call


def assertion(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before `torch._assert_async`, whose kernel stops the program if a number is 0."""
    import torch

    def call(keyset: Any, tensor: Tensor, *message: Any) -> Any:
        result = kernel(keyset, tensor, *message)
        if control.is_small(tensor) and control.state_of(Place(tensor)) == KNOWN:
            view = control.unrecorded(lambda: control.host_view(tensor))
            if not control.unrecorded(lambda: bool(torch.all(view != 0))):
                raise op_rules.device_assert()(str(message[0]) if message else "")
        return result

    return call


def copy(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before `copy_`. The hook library copies bytes. A kernel would convert dtypes and strides; that
    is computed here.
    """
    import torch

    op, integers, limit = ComputedOp(control, operation, kernel), control.integers, control.limit_numel
    allow = control.hook.allow_copies

    def read(keyset: Any, target: Tensor, source: Tensor, non_blocking: bool) -> Any:
        """Copies to the host. Unknown values read as 0 unless `--value` states another number: then all of them do."""
        reads = control.reads
        if reads.stated or source.dtype == torch.uint8:  # a buffer of an object collective, which has an unwritten end
            control.wait([source])
        place = Place(source)
        state = control.hook.data_read_state(place.address, place.nbytes)
        if state == UNKNOWN and read_warnings.is_padded(control, source):
            return kernel_alone(control, kernel, keyset, target, source, non_blocking)
        before = control.hook.reads_counted()
        result = kernel(keyset, target, source, non_blocking)
        if state == KNOWN and control.hook.reads_counted() != before:
            state = UNKNOWN  # what it refers to cannot be had
        chosen = state == KNOWN and control.chosen([place])
        if state in (UNKNOWN, ASSUMED) or chosen:
            stated = reads.stated_value(source)
            if stated is None and chosen:
                read_warnings.of_choice(control)
                return result
            if stated is None:
                read_warnings.of_unknown(control, source, state, target)
            else:
                control.unrecorded(lambda: target.fill_(stated))
                reads.decisions.host.clear(target)
            one = target.numel() == 1 and not non_blocking
            value = control.unrecorded(target.item) if one else None
            reads.note(source, value, stated=stated is not None, target=target)
        else:
            reads.decisions.host.clear(target)
            if reads.stated:
                reads.computed()
        return result

    def call(keyset: Any, target: Tensor, source: Tensor, non_blocking: bool = False) -> Any:
        dtype = target.dtype
        integer = dtype in integers and source.dtype in integers
        numel = target.numel()
        same = dtype == source.dtype and target.is_contiguous() and source.is_contiguous()
        if same and source.is_cuda and target.is_cuda:  # else the kernel copies bytes, and changes them afterwards
            same = target.is_conj() == source.is_conj() and target.is_neg() == source.is_neg()
        if control.unused_choices and source.is_cuda:
            control.use([source])
        if not target.is_cuda:
            if not same or not numel:  # the kernel copies what it converts by a call of its own
                return kernel(keyset, target, source, non_blocking)
            return read(keyset, target, source, non_blocking)
        host = control.reads.decisions.host
        if host and not source.is_cuda and host.find(source) is not None:
            flags = host.flags(control.unrecorded(lambda: source.expand(target.size())))
            result = kernel(keyset, target, source, non_blocking)
            control.forget_followed(target, flags)
            return result
        if integer and control.float_limit_numel < numel <= limit:
            allow(numel * 8)
            try:
                if same or not source.is_cuda:
                    return kernel(keyset, target, source, non_blocking)
                return op.call(keyset, (target, source, non_blocking), {})
            finally:
                allow(0)
        if same or not source.is_cuda:
            return kernel(keyset, target, source, non_blocking)
        return op.call(keyset, (target, source, non_blocking), {})

    return call


def _wait(control: ControlTensors, tensors: list[Tensor]) -> int:
    """Waits for the GPU, as the real operation does before it knows its output's size. Returns the inputs' state."""
    import torch

    torch.cuda.current_stream(tensors[0].device).synchronize()
    control.use(tensors)
    control.wait(tensors)
    return control.state(map(Place, tensors))


def values_on_host(control: ControlTensors, tensor: Tensor) -> tuple[Tensor | None, int]:
    """Returns the values of a tensor on the CPU, and what is known of them. None if nobody computed them."""
    state = _wait(control, [tensor]) if control.is_small(tensor) else UNKNOWN
    if not control.is_small(tensor):
        control.wait([tensor])
        values = references.shared(control).read(tensor)
        return values, UNKNOWN if values is None else KNOWN
    if state == UNKNOWN:
        return None, state
    try:
        view: Tensor = control.unrecorded(lambda: control.host_view(tensor))
    except NoHostView:
        return None, UNKNOWN
    return view, state


def kernel_alone(control: ControlTensors, kernel: Kernel, *args: Any, elements: int = -1, **kwargs: Any) -> Any:
    """Calls the kernel for its time: what it reads does not matter, but for the number of elements that it finds."""
    control.hook.reads_discarded(True, elements)
    control.alone.on = True
    try:
        return kernel(*args, **kwargs)
    finally:
        control.alone.on = False
        control.hook.reads_discarded(False, -1)


def equal(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before `equal`: unknown tensors count as equal."""

    def call(keyset: Any, one: Tensor, other: Tensor) -> Any:
        if one.shape != other.shape or not one.numel():
            return kernel(keyset, one, other)
        if not control.small((one, other)):
            kernel_alone(control, kernel, keyset, one, other)
        found = [values_on_host(control, tensor) for tensor in (one, other)]
        if control.chosen(map(Place, (one, other))):
            read_warnings.of_choice(control, statable=False)
        views = [values for values, state in found if state == KNOWN]
        if len(views) < 2:
            control.hook.count_read()
            read_warnings.of_comparison(control)
            return True
        return bool(control.unrecorded(lambda: operation(*views)))

    return call
