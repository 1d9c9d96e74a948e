"""Decides which signatures name the same work, and which are like each other.

A trace contains less than the hook knows: neither the call of cuBLAS through which a product came nor a kernel's shared
memory, and a kernel's readable name where the hook has the mangled one. So a signature is looked up by its `canonical`
form, which leaves out what a trace lacks and what decides no time.
"""

from __future__ import annotations

from dataclasses import replace
from math import log2, prod

from profiles.kernel_names.kernel_name import read_name
from profiles.models.products.group_ways import one_by_one, unfit
from profiles.models.products.matrix import engine_of_product
from profiles.models.products.tiles import SINGLE_ITEMS, UNALIGNED
from profiles.signature import (
    Conv,
    Copy,
    Gemm,
    Grouped,
    Kernel,
    Norm,
    Rnn,
    Scaled,
    Sdpa,
    Signature,
    Strided,
    elements,
    family_of,
    format_signature,
)

BIAS = ("bias", "bgrada", "bgradb")
"""The parts of an epilogue that cost next to nothing beside the product."""
LENGTH, GRID = 0.5, 0.25
"""The weights of a length, and of a kernel's grid, beside its modelled time."""
APART = 4.0
"""The distance between different kernels, which are no neighbours then (`corrections.FURTHEST`)."""
UNALIGNED_ENGINES = {UNALIGNED.name: 1.0, SINGLE_ITEMS.name: 2.0}


def canonical(what: Signature) -> Signature:
    if isinstance(what, (Kernel, Grouped)):
        name = read_name(what.name)
        # A trace has no sizes of lists of tensors. The grid of such a kernel says how many elements it has.
        sizes = () if name.base == "multi_tensor_apply_kernel" else what.sizes
        return replace(what, name=name.function, shared_nbytes=0, sizes=sizes)
    if isinstance(what, Gemm):
        kept = [part for part in what.epilogue.split("_") if part not in BIAS]
        return replace(what, call="cublasGemmEx", epilogue="_".join(kept) or "default", op="", sizes=())
    if isinstance(what, Copy) and what.direction in ("d2d", "p2p"):
        return replace(what, memory="pinned")
    if isinstance(what, (Conv, Norm, Sdpa, Rnn)):
        return replace(what, op="", sizes=())
    return what


def key_of(what: Signature) -> str:
    """The key of a signature: equal for signatures of the same work."""
    return format_signature(canonical(what))


def without_strides(what: Signature) -> Kernel | None:
    """The signature in tables from before signatures had strides and images, and calls without tensors; None if it is
    unchanged.
    """
    if not isinstance(what, (Strided, Scaled)):
        return None
    return Kernel(what.name, what.grid, what.block, what.shared_nbytes, what.op, what.sizes)


def may_be_turned(what: Signature) -> bool:
    """Returns true for an element-wise kernel for operands of any layout, whose strides are not known: tables have some
    from before signatures had strides.
    """
    return isinstance(what, Kernel) and read_name(what.name).base == "elementwise_kernel"


def family_key(what: Signature) -> tuple[str, ...]:
    """The family of a signature: equal for signatures that differ in sizes alone."""
    return family_of(canonical(what))


def features(what: Signature, modelled_ns: float) -> tuple[float, ...]:
    """The place of a member in its family: logarithms to the base 2. Those of a product and of a convolution are its
    sizes, since tiles fit some sizes better than others, and which kernels its rows allow; of attention its length and
    depth; of a kernel its grid and its rows' length, beside the modelled time; of all else the modelled time.
    """
    if isinstance(what, Gemm):
        unaligned = UNALIGNED_ENGINES.get(engine_of_product(what)[0].name, 0.0)
        return *_logarithms(what.m, what.n, what.k, what.batch), APART * unaligned
    if isinstance(what, Conv):
        sizes = (what.x[0] * elements(what.y[2:]), what.x[1], what.y[1], elements(what.w[2:]), max(what.groups, 1))
        return *_logarithms(*sizes), APART * (unfit(what) + one_by_one(what))
    (time,) = _logarithms(modelled_ns)
    if isinstance(what, Sdpa):
        length, depth = _logarithms(what.q[2], what.q[3])
        return time, LENGTH * length, depth
    if isinstance(what, Kernel) and what.sizes:
        row = next((shape[-1] for shape in what.sizes if shape), 1)
        return time, *(GRID * one for one in _logarithms(prod(what.grid), what.grid[0], row))
    if isinstance(what, Kernel):
        return time, 0.0, 0.0, 0.0
    return (time,)


def _logarithms(*sizes: float) -> tuple[float, ...]:
    return tuple(log2(max(size, 1)) for size in sizes)
