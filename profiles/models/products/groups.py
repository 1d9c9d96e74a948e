"""Models convolutions in groups of 16 bits for which cuDNN has no kernel that takes all groups as they are.

Either each group's channels are padded to a power of two, so that one kernel takes all groups, or the groups are cut
out and convolved one after the other, by kernels of older GPUs.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from profiles.models.machine import Machine
from profiles.models.products.group_ways import FEWEST_CHANNELS, HALF, LONG_TAPS, LONGEST_TAPS, padded_channels
from profiles.models.products.layouts import converted_ns
from profiles.models.products.tiles import Engine, product_ns, shapes
from profiles.signature import Conv, Shape, dtype_nbytes

NARROW = shapes((64, 128, 256), (64, 128), 256 * 64)
# The kernel of one group: few tiles, whose steps wait for each other; gradients of weights hardly split their sums.
ONE_FORWARD = Engine("group forward", NARROW, 0.49, 0.0, 64.0, 1.0, 4.4, 270.0, 0.03, 1650.0, 2200.0)
ONE_DATA = Engine("group data", NARROW, 0.51, 0.0, 64.0, 1.0, 2.0, 1900.0, 0.03, 2100.0, 2200.0)
ONE_WEIGHTS = Engine("group weights", NARROW, 0.23, 0.0, 64.0, 0.65, 10.4, 660.0, 0.03, 770.0, 3700.0, 5300)
ONE = {"fwd": ONE_FORWARD, "dgrad": ONE_DATA, "wgrad": ONE_WEIGHTS}
ONE_TF32 = {
    "fwd": ONE_FORWARD,
    "dgrad": replace(ONE_DATA, name="group data tf32", rate=0.33, tile_ns=4_500.0),
    "wgrad": replace(ONE_WEIGHTS, name="group weights tf32", rate=0.086),
}
# Streams of cuDNN; exponent of the norm that joins what keeps the GPU busy and what waits for its turn.
STREAMS, JOINED = 8, 3.0
TILE = (64, 128)  # the tile of a group's kernel
# Shares of the streaming bandwidth: channels cut out of rows or put into them, by an item's bytes; items turned round.
CUT_STREAM, TURNED_STREAM = {2: 0.37, 4: 0.55}, 0.033
PADDED_INSTRUCTIONS = 131.0  # an item that is read or written where rows get channels between others
# Long filters: nanoseconds a step of a group's sum, which has few tiles; times as long of tf32; by the slow kernels.
LONG_STEP_NS, LONG_TF32, SLOW_STEP_NS = {"fwd": 18.5, "dgrad": 35.0}, 1.75, 130.0
WEIGHTS_NS = 10_000.0  # padding the filters

# Gradients of weights of groups with fewer channels than a vector: a sum goes through the pixels one after the other,
# in parts if they are many. Channels first, few pixels: instructions an element of the output, by stride.
PIXEL_NS, PARTS, PARTS_NS = 4.05, 6, 5_000.0
SPLIT_PIXELS, SPLIT_IMAGES = {"nhwc": 150_000, "nchw": 250_000}, 64
SHARED_ELEMENT = {1: 490.0, 2: 1_060.0}


def one_by_one_ns(machine: Machine, what: Conv) -> float:
    """The time of convolving the groups one by one: each group's operands are cut out, its kernel runs, its result is
    put in. Groups run on several streams, beside each other as far as the GPU has room.
    """
    item, floor = dtype_nbytes(what.dtype), machine.gpu.achieved.kernel_floor_ns
    one = of_one_group(what)
    cut = sum(_cut_ns(machine, shape, item, what.layout) for shape in (one.x, one.y))
    taps, outer, inner = prod(one.w[2:]), one.w[0], one.w[1]
    pixels_in, pixels_out = one.x[0] * prod(one.x[2:]), one.y[0] * prod(one.y[2:])
    if what.direction == "fwd":
        size = outer, pixels_out, inner * taps
    elif what.direction == "wgrad":
        size = outer, inner * taps, pixels_out
    else:
        size = inner, pixels_in, max(round(outer * taps * pixels_out / max(pixels_in, 1)), 1)
    nbytes = item * (prod(one.x) + prod(one.w) + prod(one.y))
    if taps >= LONG_TAPS and what.direction in LONG_STEP_NS:  # latencies, which groups beside each other hide
        main = size[2] * LONG_STEP_NS[what.direction] * (LONG_TF32 if what.dtype == "tf32" else 1.0)
        return ceil(what.groups / STREAMS) * (cut + floor + main)
    engine = (ONE_TF32 if what.dtype == "tf32" else ONE)[what.direction]
    alone = floor + product_ns(machine, engine, what.dtype, *size, nbytes=nbytes)
    tiles = ceil(size[0] / TILE[0]) * ceil(size[1] / TILE[1])
    busy = what.groups * (cut + alone * min(tiles / machine.sms, 1.0))
    chain = ceil(what.groups / STREAMS) * (cut + alone)
    return float((busy**JOINED + chain**JOINED) ** (1 / JOINED))


def is_slow(what: Conv) -> bool:
    """Returns true for 16 bits without tensor cores, by kernels of few blocks: groups of a long filter whose channels
    do not fit.
    """
    channels, taps = what.w[1], prod(what.w[2:])
    half = what.dtype in HALF and what.direction == "fwd" and what.groups > 1
    return half and taps >= LONGEST_TAPS and channels & (channels - 1) != 0


def slow_ns(what: Conv) -> float:
    return SLOW_STEP_NS * what.groups * what.w[1] * prod(what.w[2:])


def of_one_group(what: Conv) -> Conv:
    n, k = what.x[0], what.w[0] // what.groups
    return replace(what, x=(n, what.w[1], *what.x[2:]), w=(k, *what.w[1:]), y=(n, k, *what.y[2:]), groups=1)


def _cut_ns(machine: Machine, shape: Shape, item: float, layout: str) -> float:
    if layout == "nchw":
        return converted_ns(machine, shape, item)
    return machine.gpu.achieved.kernel_floor_ns + 2 * item * prod(shape) / (
        machine.memory_gb_per_s * CUT_STREAM[int(item)]
    )


def padded(what: Conv) -> Conv:
    """The convolution of all groups with their padded channels."""
    groups = what.groups
    each = padded_channels(max(what.w[1], what.w[0] // groups))  # kernels take as many on both sides
    x, y = (what.x[0], groups * each, *what.x[2:]), (what.y[0], groups * each, *what.y[2:])
    return replace(what, x=x, y=y, w=(groups * each, each, *what.w[2:]), layout="nhwc")


def padding_ns(machine: Machine, what: Conv, wider: Conv) -> float:
    """The time of the work beside the padded convolution: fills, and copies of both operands, or of one and the
    result.
    """
    item, floor = dtype_nbytes(what.dtype), machine.gpu.achieved.kernel_floor_ns
    if what.w == wider.w:
        return 0.0
    weights = prod(what.w) + prod(wider.w)
    total = floor + WEIGHTS_NS + machine.issue_ns(PADDED_INSTRUCTIONS * weights)
    for narrow, wide in ((what.x, wider.x), (what.y, wider.y)):
        if narrow == wide:
            continue
        total += floor + machine.memory_ns(item * prod(wide))
        if what.layout == "nchw":
            total += converted_ns(machine, narrow, item) * (1 + wide[1] / narrow[1]) / 2
        else:
            total += floor + machine.issue_ns(PADDED_INSTRUCTIONS * (prod(narrow) + prod(wide)))
    return total


def has_few_weights(what: Conv) -> bool:
    few = what.groups > 1 and 1 < what.w[1] < FEWEST_CHANNELS
    return few and what.direction == "wgrad" and what.dtype in HALF and prod(what.w[2:]) < LONG_TAPS


def few_weights_ns(machine: Machine, what: Conv) -> float:
    pixels, item = what.y[0] * prod(what.y[2:]), dtype_nbytes(what.dtype)
    split = pixels > SPLIT_PIXELS[what.layout] and what.x[0] > SPLIT_IMAGES
    if what.layout == "nchw" and not split:
        return machine.issue_ns(SHARED_ELEMENT[min(max(what.stride), 2)] * prod(what.y))
    main = PIXEL_NS * pixels / PARTS + PARTS_NS if split else PIXEL_NS * pixels
    turned = (what.x, what.y, what.w) if what.layout == "nchw" else ()
    return main + sum(converted_ns(machine, shape, item) for shape in turned)


def turned_ns(machine: Machine, one: Conv) -> float:
    """The time of turning operands round: both operands of a group, or one and the result, pass through kernels that do
    it item by item.
    """
    passed = 2 * dtype_nbytes(one.dtype) * (prod(one.x) + prod(one.y))
    return 2 * machine.gpu.achieved.kernel_floor_ns + passed / (machine.memory_gb_per_s * TURNED_STREAM)
