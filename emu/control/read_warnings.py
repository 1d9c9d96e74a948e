"""Warnings about values that the program reads although nobody computed them, or although a policy chose them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from .control_tensors import ASSUMED, UNKNOWN, ControlTensors
from .host_views import Place

if TYPE_CHECKING:
    from torch import Tensor


def of_unknown(
    control: ControlTensors, tensor: Tensor, state: int, target: Tensor | None = None, *, statable: bool = True
) -> None:
    """Integers and bools are worth a warning, and large tensors, which may be saved; small floats are not: a training
    script prints its loss. The hook library counts all. `target`: the tensor of the host's that they are copied to.
    `statable`: `--value` can say what is read.
    """
    hook, reads = control.hook, control.reads
    span = _span(tensor)
    if tensor.dtype in control.integers and hook.data_chosen(*span):
        reads.decisions.count_check()
        return
    if state == UNKNOWN and reads.checkpoints.writing:
        reads.checkpoints.note_written(min(hook.data_unknown(*span), tensor.nbytes))
        return
    large = tensor.numel() > control.float_limit_numel or _is_bytes(tensor)
    if state == UNKNOWN and large and _of_large(control, tensor, target):
        return
    if tensor.is_floating_point() or tensor.is_complex() or prints_floats():
        return
    if state == UNKNOWN and is_padded(control, tensor):
        return
    if state == ASSUMED and tensor.element_size() == 1:  # bools
        if reads.decisions.by_torch():
            return  # a check for overflow, or of a distribution's arguments, which finds nothing
        if reads.decisions.by_check():
            reads.decisions.count_check()
            return
    if _copies_storage():
        return
    values = "they follow from values taken as finite" if state == ASSUMED else "0 was read"
    _tell(
        control,
        f"reads {_dtype(tensor)} values that depend on kernels that are not executed: {values}, and what the program "
        "decides by them may differ from a GPU's",
        statable=statable,
    )


def of_size(control: ControlTensors, tensor: Tensor, size: str, policy: str) -> None:
    """A tensor's size follows from values that nobody computed, and the policy of --data-shapes has chosen it."""
    _tell(
        control,
        f"makes a tensor whose size depends on {_dtype(tensor)} values of kernels that are not executed: it has "
        f"{size}, by the policy of --data-shapes ({policy}), and on a GPU the size may differ",
        statable=False,
    )


def of_comparison(control: ControlTensors) -> None:
    """Warns that `torch.equal` reads values that nobody computed."""
    _tell(control, "compares tensors that are not computed: they count as equal", statable=False)


def of_choice(control: ControlTensors, *, statable: bool = True) -> None:
    """The program reads what follows from a choice that it made by scores that nobody computed."""
    control.hook.count_read()
    _tell(
        control,
        "reads a choice (argmax, topk, multinomial ...) among scores that are not computed, or what follows from it: "
        "the policy of --moe or --data-shapes has chosen, so an accuracy means nothing",
        statable=statable,
    )


def _tell(control: ControlTensors, text: str, *, statable: bool) -> None:
    """Warns once for each line of the program's; the reads of each are counted."""
    line = control.hook.line()
    if line:
        control.reads.decisions.count(line)
    end = control.reads.how_to_state(control.reads.decisions.read_at()) if statable else ""
    control.hook.warn_once(f"read {line}", f"{line or 'the script'} {text}{end}")


def is_padded(control: ControlTensors, tensor: Tensor) -> bool:
    """Tells whether the tensor is a buffer of bytes that an object collective of torch.distributed reads. Nobody has
    written its end.
    """
    if not _is_bytes(tensor) or not control.hook.data_any(*_span(tensor)):
        return False
    return control.reads.decisions.by_torch() and not _copies_storage()


def _of_large(control: ControlTensors, tensor: Tensor, target: Tensor | None) -> bool:
    """Notes a read of a large tensor. Returns False, and notes nothing, if the tensor's dtype decides. Whole storages
    are read as bytes; so are buffers of object collectives, whose end nobody has written.
    """
    if not tensor.is_contiguous() or not (tensor.element_size() == 1 or tensor.is_floating_point()):
        return False
    address, nbytes = _span(tensor)
    unknown = control.hook.data_unknown(address, nbytes)
    if tensor.element_size() == 1 and unknown < nbytes and not tensor.is_floating_point():
        return False
    control.reads.checkpoints.note_read(target, nbytes, unknown)
    return True


def prints_floats() -> bool:
    """Tells whether the program is printing a floating-point tensor. PyTorch then asks which of its numbers are
    finite."""
    frame: Any = sys._getframe(2)
    for _ in range(12):
        if frame is None:
            return False
        if frame.f_code.co_name == "__init__" and frame.f_globals.get("__name__") == "torch._tensor_str":
            return bool(getattr(frame.f_locals.get("self"), "floating_dtype", False))
        frame = frame.f_back
    return False


def _copies_storage() -> bool:
    """Tells whether a storage is being copied, as torch.save does. Its bytes stand for values of any dtype."""
    frame: Any = sys._getframe(2)
    for _ in range(6):
        if frame is None:
            return False
        if frame.f_code.co_name == "cpu" and frame.f_globals.get("__name__") == "torch.storage":
            return True
        frame = frame.f_back
    return False


def _is_bytes(tensor: Tensor) -> bool:
    import torch

    return tensor.dtype == torch.uint8


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _span(tensor: Tensor) -> tuple[int, int]:
    place = Place(tensor)
    return place.address, place.nbytes
