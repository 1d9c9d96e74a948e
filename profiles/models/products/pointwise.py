"""Models convolutions with 1x1 filters without stride, which are products of matrices; channels first of each image,
with its pixels as columns.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod

from profiles.models.machine import Machine
from profiles.models.products.engines import engine_of
from profiles.models.products.tiles import SINGLE_ITEMS, UNALIGNED, Engine, product_ns
from profiles.signature import Conv, dtype_nbytes

VECTOR_NBYTES = 16
# Sums over pixels whose items are loaded one by one run at half the rate.
SINGLE_WEIGHTS = replace(SINGLE_ITEMS, name="convolution weights single items", rate=0.087)
CONVERTED_PIXELS, CONVERTED_PAIRS = 200, 60  # smaller images are converted instead, of odd and of even pixels
PART_NBYTES, MOST_PARTS = 4, 1.0  # an item of an image's part of a sum; parts over operands, from which on likewise
# Tensor cores take TF32 operands with k innermost: of these products one has it forward, none for the data's gradient.
TURNED = {"fwd": 1.4, "dgrad": 1.8, "wgrad": 1.0}


def by_images(what: Conv, engine: Engine) -> Engine | None:
    """The engine that multiplies the images one by one; None: they are converted. `engine`: the one for aligned rows.

    Rows that do not begin at 16 bytes: cuDNN has kernels that load pairs of items, or single items for backward
    (`cutlass_80_..._align2`, `cutlass_75_..._align1`).
    """
    pixels, vector = prod(what.x[2:]), max(int(VECTOR_NBYTES / dtype_nbytes(what.dtype)), 1)
    tensor = what.dtype in ("f16", "bf16", "tf32")
    if what.direction == "wgrad" and tensor and parts_nbytes(what) > MOST_PARTS * _operands_nbytes(what):
        return None
    if pixels % vector == 0:
        return replace(engine, rate=engine.rate / TURNED[what.direction]) if what.dtype == "tf32" else engine
    if what.dtype not in ("f16", "bf16"):
        return None
    if pixels % 2 == 0:
        pairs = what.direction == "fwd" or (what.direction == "dgrad" and pixels > CONVERTED_PAIRS)
        return UNALIGNED if pairs else None
    weights = SINGLE_WEIGHTS if pixels > CONVERTED_PIXELS else None
    return {"fwd": None, "dgrad": SINGLE_ITEMS, "wgrad": weights}[what.direction]


def parts_nbytes(what: Conv) -> float:
    """The bytes of all images' parts of the weights' gradient."""
    return float(PART_NBYTES * what.x[0] * what.w[0] * what.w[1])


def _operands_nbytes(what: Conv) -> float:
    return dtype_nbytes(what.dtype) * (prod(what.x) + prod(what.y))


def sum_of_images_ns(machine: Machine, what: Conv, engine: Engine, dtype: str, nbytes: float) -> float:
    """The time of the weights' gradient: a product for each image, then the sum of all."""
    images, parts = what.x[0], parts_nbytes(what)
    main = product_ns(machine, engine, dtype, what.w[0], what.w[1], prod(what.x[2:]), images, nbytes=nbytes + parts)
    return main if images == 1 else main + machine.gpu.achieved.kernel_floor_ns + machine.memory_ns(parts)


def by_rows(what: Conv) -> Engine:
    """The engine that multiplies where channels are rows: products of matrices, aligned or not."""
    channels = gcd(what.w[0], what.w[1])
    return engine_of(what.dtype, row_nbytes=channels * dtype_nbytes(what.dtype))[0]
