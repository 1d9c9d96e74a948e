"""Convolutions in groups of 16 bits for which cuDNN has no kernel that takes all groups as they are.

Either each group's channels are padded to a power of two, so that one kernel takes all groups, or the groups are cut
out and convolved one after the other, by kernels of older GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil, prod

from profiles.models.machine import Machine
from profiles.models.products.tiles import Engine, product_ns, shapes
from profiles.signature import Conv, Shape, dtype_nbytes

NARROW = shapes((64, 128, 256), (64, 128), 256 * 64)
# The kernel of one group: few tiles, whose steps wait for each other; gradients of weights hardly split their sums.
ONE_FORWARD = Engine("group forward", NARROW, 0.49, 0.0, 64.0, 1.0, 4.4, 270.0, 0.03, 1650.0, 2200.0)
ONE_DATA = Engine("group data", NARROW, 0.51, 0.0, 64.0, 1.0, 2.0, 1900.0, 0.03, 2100.0, 2200.0)
ONE_WEIGHTS = Engine("group weights", NARROW, 0.23, 0.0, 64.0, 0.65, 10.4, 660.0, 0.03, 770.0, 3700.0, 5300)
ONE = {"fwd": ONE_FORWARD, "dgrad": ONE_DATA, "wgrad": ONE_WEIGHTS}
STREAMS, JOINED = (
    8,
    3.0,
)  # of cuDNN; exponent of the norm that joins what keeps the GPU busy and what waits for its turn
TILE = (64, 128)  # of a group's kernel
# Shares of the streaming bandwidth: channels cut out of rows or put into them, and rows with channels between others.
CUT_STREAM, PADDED_STREAM = 0.37, 0.16
FEWEST_CHANNELS = 8
THREE_BY_THREE = 9  # taps
DIRECT_TAPS = 64  # so long filters have kernels without tensor cores
FEWEST_OF_GROUP, MOST_OF_GROUP = 4, 128
"""Channels of a group for which cuDNN has kernels that take all groups at once."""
TOGETHER = {"tf32": 48}
"""Channels of a group up to which groups are convolved together, by dtype."""
ALWAYS_PADDED, MOST_PADDED, NEVER_PADDED, WIDE_GROUP, FEW_IMAGES = 32, 256, (48, 64), 64, 4
"""Channels of a group that are padded, and those that are not though more are."""
WEIGHTS_NS = 10_000.0  # padding the filters

# Gradients of weights of groups with fewer channels than a vector: a sum goes through the pixels one after the other,
# in parts if they are many. Channels first, few pixels: instructions an element of the output, by stride.
PIXEL_NS, SPLIT_PIXELS, PARTS, PARTS_NS = 4.05, 150_000, 6, 5_000.0
SHARED_ELEMENT = {1: 490.0, 2: 1_060.0}

Converted = Callable[[Machine, Shape, float], float]
"""Time of a kernel between channels first and last."""


def half_in_groups(what: Conv) -> bool:
    """16 bits, in groups that no kernel takes as they are."""
    groups = max(what.groups, 1)
    outer, inner, taps = what.w[0] // groups, what.w[1], prod(what.w[2:])
    if groups == 1 or inner == 1 or len(what.w) != 4 or taps >= DIRECT_TAPS or what.dtype not in ("f16", "bf16"):
        return False
    fits = outer == inner and inner & (inner - 1) == 0 and FEWEST_OF_GROUP <= inner <= MOST_OF_GROUP
    if inner >= WIDE_GROUP and (what.x[0] <= FEW_IMAGES or (what.direction == "dgrad" and min(what.stride) > 1)):
        return True
    return not (fits and taps == THREE_BY_THREE)


def one_by_one(what: Conv) -> bool:
    """Are the groups convolved one after the other? They are where cuDNN has no kernel that takes all at once. When 16
    bits are padded instead is not documented: the rule was read off 1,200 calls, of which it tells 83 %.
    """
    if what.groups == 1 or what.w[1] == 1 or prod(what.w[2:]) >= DIRECT_TAPS:
        return False
    channels = max(what.w[0] // what.groups, what.w[1])
    if what.dtype not in ("f16", "bf16"):
        return channels > TOGETHER.get(what.dtype, 0)
    if not half_in_groups(what) or channels <= ALWAYS_PADDED:
        return False
    if channels & (channels - 1) == 0 or channels > MOST_PADDED:
        return True
    if what.direction == "wgrad":
        return channels > MOST_OF_GROUP or (what.layout == "nhwc" and channels <= NEVER_PADDED[0])
    strided = what.direction == "dgrad" and min(what.stride) > 1
    return strided or NEVER_PADDED[0] < channels <= NEVER_PADDED[1]


def padded_channels(channels: int) -> int:
    return max(1 << (channels - 1).bit_length(), FEWEST_CHANNELS)


def one_by_one_ns(machine: Machine, what: Conv, converted: Converted) -> float:
    """Each group's operands are cut out, its kernel runs, its result is put in. Groups run on several streams, beside
    each other as far as the GPU has room.
    """
    item, floor = dtype_nbytes(what.dtype), machine.gpu.achieved.kernel_floor_ns
    one = of_one_group(what)
    cut = sum(_cut_ns(machine, shape, item, what.layout, converted) for shape in (one.x, one.y))
    taps, outer, inner = prod(one.w[2:]), one.w[0], one.w[1]
    pixels_in, pixels_out = one.x[0] * prod(one.x[2:]), one.y[0] * prod(one.y[2:])
    if what.direction == "fwd":
        size = outer, pixels_out, inner * taps
    elif what.direction == "wgrad":
        size = outer, inner * taps, pixels_out
    else:
        size = inner, pixels_in, max(round(outer * taps * pixels_out / max(pixels_in, 1)), 1)
    nbytes = item * (prod(one.x) + prod(one.w) + prod(one.y))
    alone = floor + product_ns(machine, ONE[what.direction], what.dtype, *size, nbytes=nbytes)
    tiles = ceil(size[0] / TILE[0]) * ceil(size[1] / TILE[1])
    busy = what.groups * (cut + alone * min(tiles / machine.sms, 1.0))
    chain = ceil(what.groups / STREAMS) * (cut + alone)
    return float((busy**JOINED + chain**JOINED) ** (1 / JOINED))


def of_one_group(what: Conv) -> Conv:
    n, k = what.x[0], what.w[0] // what.groups
    return replace(what, x=(n, what.w[1], *what.x[2:]), w=(k, *what.w[1:]), y=(n, k, *what.y[2:]), groups=1)


def _cut_ns(machine: Machine, shape: Shape, item: float, layout: str, converted: Converted) -> float:
    if layout == "nchw":
        return converted(machine, shape, item)
    return machine.gpu.achieved.kernel_floor_ns + 2 * item * prod(shape) / (machine.memory_gb_per_s * CUT_STREAM)


def padded(what: Conv) -> Conv:
    """The convolution of all groups with their padded channels."""
    groups = what.groups
    inner, outer = padded_channels(what.w[1]), padded_channels(what.w[0] // groups)
    x, y = (what.x[0], groups * inner, *what.x[2:]), (what.y[0], groups * outer, *what.y[2:])
    return replace(what, x=x, y=y, w=(groups * outer, inner, *what.w[2:]), layout="nhwc")


def padding_ns(machine: Machine, what: Conv, wider: Conv, converted: Converted) -> float:
    """What is done beside the padded convolution: fills, and copies of both operands, or of one and the result."""
    item, floor = dtype_nbytes(what.dtype), machine.gpu.achieved.kernel_floor_ns
    total = floor + WEIGHTS_NS
    for narrow, wide in ((what.x, wider.x), (what.y, wider.y)):
        if narrow == wide:
            continue
        total += floor + machine.memory_ns(item * prod(wide))
        if what.layout == "nchw":
            total += converted(machine, narrow, item) * (1 + wide[1] / narrow[1]) / 2
        else:
            passed = item * (prod(narrow) + prod(wide))
            total += floor + passed / (machine.memory_gb_per_s * PADDED_STREAM)
    return total


def has_few_weights(what: Conv) -> bool:
    few = what.groups > 1 and 1 < what.w[1] < FEWEST_CHANNELS
    return few and what.direction == "wgrad" and what.dtype in ("f16", "bf16") and prod(what.w[2:]) < DIRECT_TAPS


def few_weights_ns(machine: Machine, what: Conv, converted: Converted) -> float:
    pixels, item = what.y[0] * prod(what.y[2:]), dtype_nbytes(what.dtype)
    split = pixels > SPLIT_PIXELS
    if what.layout == "nchw" and not split:
        return machine.issue_ns(SHARED_ELEMENT[min(max(what.stride), 2)] * prod(what.y))
    main = PIXEL_NS * pixels / PARTS + PARTS_NS if split else PIXEL_NS * pixels
    turned = (what.x, what.y, what.w) if what.layout == "nchw" else ()
    return main + sum(converted(machine, shape, item) for shape in turned)
