"""Models gradients of weights whose sums over all pixels are not split: their blocks go through the pixels one by one.

Without tensor cores cuDNN's tiles of 32 by 32 do so for volumes, and for 1x1 filters of many channels; where one side
has few channels, a warp has a tap of a few of them.
"""

from __future__ import annotations

from math import ceil, prod

from profiles.models.machine import Machine
from profiles.models.products.layouts import converted_ns
from profiles.models.products.transforms import winograds
from profiles.signature import Conv

TILE = 32
# Nanoseconds a pixel: operands in the L2 cache or not; each tile of an SM.
PIXEL_NS, NEAR_PIXEL_NS, TILE_NS = 28.5, 18.7, 9.0
NEAR_L2 = 0.5  # operands count as in the L2 cache up to this share of its size
# Channels on either side, and on the output's alone with tensor cores, that a kernel without tiles takes.
FEW_CHANNELS, FEW_OUTPUTS, MANY_INPUTS, CUBE = 8, 4, 64, 27
WEIGHTS_OF_BLOCK, DIRECT_PIXEL_NS, DIRECT_BLOCK_NS = 8, 11.7, 4.1
# 1x1, channels first: bytes of an image's gradient over those of its operands, and products of channels, from which on.
TURNED_SHARE, TURNED_CHANNELS = 0.5, 60_000
MANY_WEIGHTS = 300_000  # weights of larger filters from which on this kernel is chosen
ITEM = 4


def is_unsplit(what: Conv) -> bool:
    if what.dtype != "f32" or what.direction != "wgrad" or what.groups > 1:
        return False
    if len(what.w) == 5:
        return True
    if len(what.w) != 4 or what.layout != "nchw" or winograds(what):
        return False
    if prod(what.w[2:]) > 1:
        apart = max(*what.stride, *what.dilation) > 1  # else some go through transforms
        return apart and prod(what.w) >= MANY_WEIGHTS
    outer, inner = what.w[:2]
    passed = prod(what.y[2:]) * (outer + inner)
    return outer * inner >= max(TURNED_CHANNELS, TURNED_SHARE * passed) and not any(what.padding)


def has_no_tiles(what: Conv) -> bool:
    """Returns true for cubes of a few channels."""
    cube = len(what.w) == 5 and prod(what.w[2:]) == CUBE and prod(what.stride) == 1
    if not cube or what.direction != "wgrad" or what.groups > 1:
        return False
    outer, inner = what.w[:2]
    if what.dtype == "f32":
        return min(outer, inner) <= FEW_CHANNELS
    return outer <= FEW_OUTPUTS and inner >= MANY_INPUTS


def unsplit_ns(machine: Machine, what: Conv) -> float:
    pixels, sms = what.y[0] * prod(what.y[2:]), machine.sms
    if has_no_tiles(what):
        blocks = prod(what.w) / WEIGHTS_OF_BLOCK
        return pixels * max(DIRECT_PIXEL_NS, DIRECT_BLOCK_NS * blocks / sms)
    tiles = ceil(what.w[0] / TILE) * ceil(prod(what.w[1:]) / TILE)
    near = ITEM * (prod(what.x) + prod(what.y)) <= NEAR_L2 * machine.gpu.memory.l2_nbytes
    step = max(NEAR_PIXEL_NS if near else PIXEL_NS, TILE_NS * tiles / sms)
    turned = (what.x, what.y) if what.layout == "nchw" else ()
    return pixels * step + sum(converted_ns(machine, one, ITEM) for one in turned)
