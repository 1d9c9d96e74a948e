"""Finds how an element-wise kernel of a trace walks over its operands, from the sizes and strides of its op's inputs,
and the sizes of images that are scaled: what the hook reads from the kernel's parameters (emu/hook/kernels/layout.c,
images.c).

The rules are those of PyTorch's TensorIterator: an output that the op makes is laid out as its inputs are, dimensions
are sorted by strides, and those that follow each other in all operands become one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

from profiles.kernel_names.kernel_name import KernelName, item_nbytes, read_name
from profiles.models.kernels.elementwise import STRIDED_BASE, functor_of, functor_text
from profiles.signature import Kernel, Scaled, Shape, Strided

LARGEST_ITEM_NBYTES = 16
"""The largest item in bytes: a stride of a power of two up to it, or of 0, may be that of dense items."""
Strides = list[int]
"""The strides of one operand in bytes, the innermost dimension first."""


def with_layout(what: Kernel, op: dict[str, Any] | None) -> Kernel:
    """The signature that the hook makes of the kernel, from what its op tells."""
    fields = (what.name, what.grid, what.block, what.shared_nbytes, what.op, what.sizes)
    if layout := layout_of(what.name, op):
        return Strided(*fields, *layout)
    if images := images_of(what.name, op):
        return Scaled(*fields, *images)
    return what


def layout_of(kernel: str, op: dict[str, Any] | None) -> tuple[Shape, str] | None:
    """The extent and strides as a `strided` signature has them; None where all operands are dense or repeated along the
    innermost dimension, and where the op does not tell.
    """
    name = read_name(kernel)
    if op is None or name.base != STRIDED_BASE or (found := _operands(name, op)) is None:
        return None
    extent, strides = found
    if not any(_jumps(operand[0]) for operand in strides):
        return None
    return tuple(extent), ",".join("x".join(map(str, operand)) for operand in strides)


def images_of(kernel: str, op: dict[str, Any] | None) -> tuple[Shape, Shape] | None:
    """The height and width before and after, for the gradient of a bilinear upsampling; None for other kernels."""
    texts = op["args"].get("Concrete Inputs", []) if op is not None else []
    if "upsample_bilinear2d_backward_" not in kernel or len(texts) < 3:
        return None
    after, before = (tuple(map(int, re.findall(r"\d+", one))) for one in texts[1:3])
    return (before[2:], after) if len(after) == 2 and len(before) == 4 else None


def _jumps(stride: int) -> bool:
    return stride > LARGEST_ITEM_NBYTES or stride & (stride - 1) != 0


def _operands(name: KernelName, op: dict[str, Any]) -> tuple[list[int], list[Strides]] | None:
    args = op["args"]
    dims, strides, types = args.get("Input Dims", []), args.get("Input Strides") or [], args.get("Input type", [])
    if not len(dims) == len(strides) == len(types):
        return None
    tensors = [
        (list(shape), [int(item_nbytes(dtype)) * stride for stride in by])
        for shape, by, dtype in zip(dims, strides, types, strict=True)
        if shape and by and not isinstance(shape[0], list)
    ]
    functor = functor_of(functor_text(name))
    inputs = len(functor.inputs)
    if op["name"].endswith("_") and tensors:
        output, tensors = tensors[0], tensors[1:] if op["name"] == "aten::copy_" else tensors
    elif len(tensors) == inputs + 1:
        output, tensors = tensors[-1], tensors[:-1]
    else:
        output = None
    if "batch_norm" in op["name"] and tensors:
        tensors = [_of_channels(one, tensors[0][0]) for one in tensors]
        output = tensors[1 if op["name"].endswith("backward") else 0]  # laid out as the images, not as the gradient
    if len(tensors) != inputs or not tensors:
        return None
    shape = _broadcast([one for one, _ in (*tensors, *([output] if output else []))])
    walked = [_over(shape, *tensor) for tensor in tensors]
    written = _over(shape, *output) if output else None
    order = _order(shape, [*([written] if written else []), *walked])
    if written is None:
        written = [0] * len(shape)
        step = int(functor.output)
        for at in order:
            written[at] = step
            step *= shape[at]
    return _joined([shape[at] for at in order], [[operand[at] for at in order] for operand in (written, *walked)])


def _of_channels(tensor: tuple[list[int], Strides], images: list[int]) -> tuple[list[int], Strides]:
    """The strides of an operand with an item for each channel, which the op spreads over the pixels of `images`."""
    shape, strides = tensor
    if len(shape) > 1 or len(images) < 2 or shape != images[1:2]:
        return tensor
    return [shape[0], *[1] * (len(images) - 2)], [strides[0], *[0] * (len(images) - 2)]


def _broadcast(shapes: Sequence[Sequence[int]]) -> list[int]:
    """The common shape of these shapes, the innermost dimension first."""
    longest = max(map(len, shapes))
    padded = [[*reversed(shape), *[1] * (longest - len(shape))] for shape in shapes]
    return [max(sizes) if min(sizes) else 0 for sizes in zip(*padded, strict=True)]


def _over(shape: Sequence[int], own: Sequence[int], strides: Sequence[int]) -> Strides:
    inner = [stride if size > 1 else 0 for size, stride in zip(reversed(own), reversed(strides), strict=True)]
    return [*inner, *[0] * (len(shape) - len(own))]


def _order(shape: Sequence[int], operands: Sequence[Strides]) -> list[int]:
    """The dimensions by their strides, the first operand's first: an insertion sort, since not all can be compared."""
    order = list(range(len(shape)))
    for at in range(1, len(order)):
        for before in range(at - 1, -1, -1):
            compared = _compare(shape, operands, order[before], order[at])
            if compared > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif compared < 0:
                break
    return order


def _compare(shape: Sequence[int], operands: Sequence[Strides], one: int, other: int) -> int:
    for operand in operands:
        if operand[one] and operand[other]:
            if operand[one] != operand[other]:
                return -1 if operand[one] < operand[other] else 1
            if shape[one] > shape[other]:
                return 1
    return 0


def _joined(extent: list[int], strides: list[Strides]) -> tuple[list[int], list[Strides]] | None:
    if prod(extent) == 0:
        return None
    kept = [0]
    sizes = [extent[0]]
    for at in range(1, len(extent)):
        last = kept[-1]
        if sizes[-1] == 1 or extent[at] == 1 or all(sizes[-1] * one[last] == one[at] for one in strides):
            if sizes[-1] == 1:
                kept[-1] = at
            sizes[-1] *= extent[at]
        else:
            kept.append(at)
            sizes.append(extent[at])
    return sizes, [[operand[at] for at in kept] for operand in strides]


def channels_last(sizes: list[int], strides: list[int]) -> bool:
    """The rule of `c10::is_channels_last_strides_2d`: strides that fit both layouts count as channels-first."""
    if len(sizes) < 4 or len(strides) != len(sizes) or strides[1] == 0:
        return False
    least = 0
    for at in (1, *range(len(sizes) - 1, 1, -1), 0):
        if sizes[at] == 0 or strides[at] < least or (at == 0 and least == strides[1]):
            return False
        least = strides[at] * (sizes[at] if sizes[at] > 1 else 1)
    return True
