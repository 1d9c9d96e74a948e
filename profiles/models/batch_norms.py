"""cuDNN's batch norm.

Channels first, a block sums a channel. It keeps the channel in shared memory if it fits; else inputs are read again.
Channels last, the GPU's blocks (two on an SM) share the pixels of 64 channels: where what a block gets fits its
registers and shared memory, x is read once, and all blocks of the same channels wait for each other's sums in each
round; where it does not fit, inputs are read a second time. Channels that do not fill the 64 are loaded one by one.
"""

from __future__ import annotations

from math import ceil, prod

from profiles.descriptions.gpu import Gpu
from profiles.models.machine import Estimate, Machine, both
from profiles.signature import Norm, dtype_nbytes

# Channels first: share of the streaming bandwidth, times that the input or the output pass, instructions an element.
CUDNN_NORM_RATE = 0.85
CUDNN_NORM_PASSES = {"fwd": 3, "bwd": 5}
CUDNN_INSTRUCTIONS = {"fwd": 150.0, "bwd": 150.0}
# One block's time per element of its channel, with 16 bits and with more; what each further block on its SM adds to it;
# and blocks of an SM.
CUDNN_CHANNEL_NS, CUDNN_BESIDE = {"fwd": (0.70, 0.57), "bwd": (1.42, 1.54)}, {"fwd": 0.45, "bwd": 0.23}
CUDNN_BLOCKS = 4
# The share of that time that is saved where the L2 cache has the inputs; nothing is saved from this share of its size
# on.
CUDNN_NEAR, CUDNN_NEAR_L2 = {"fwd": 0.28, "bwd": 0.45}, 0.7
# Bytes of a channel's inputs that a block keeps, with 16 bits and with more; how often they then pass, at which share
# of the bandwidth; time of one; instructions an element where pixels are odd.
CHANNEL_NBYTES, CHANNEL_PASSES, CHANNEL_STREAM = (176_000, 128_000), {"fwd": 2, "bwd": 3}, 0.61
CHANNEL_NS, CHANNEL_ELEMENT_NS = 1_500.0, {"fwd": 0.27, "bwd": 0.37}
ODD_INSTRUCTIONS = {"fwd": (170.0, 210.0), "bwd": (215.0, 280.0)}
# Channels last: pixels that a block keeps at most, and gets at least, by direction, with 16 bits and with more.
CHANNELS, BLOCKS, PIXELS_APART = 64, 2, 32
KEPT_PIXELS = {"fwd": (384, 288), "bwd": (192, 192)}
LEAST_PIXELS = {"fwd": (160, 64), "bwd": (96, 96)}
KEPT_PASSES = {"fwd": 2, "bwd": 3}
KEPT_STREAM, STREAM = 0.9, {"fwd": 0.9, "bwd": 0.95}  # shares of the streaming bandwidth
LINE_NBYTES, UNALIGNED = 128, 1.25
# Instructions an element, also of the channels that are missing from the last 64; where inputs are read twice
# and channels are no multiple of 16, of those that are there.
FULL_INSTRUCTIONS, SINGLE_INSTRUCTIONS = {"fwd": 48.0, "bwd": 63.0}, {"fwd": 168.0, "bwd": 205.0}
WHOLE_CHANNELS = 16
# A round of sums that blocks wait for, and what each block that shares the channels adds.
ROUND_NS, ROUND_BLOCK_NS = {"fwd": 5_000.0, "bwd": 4_500.0}, {"fwd": 15.0, "bwd": 5.0}


def norm(gpu: Gpu, what: Norm) -> Estimate:
    ns = _channels_last if what.layout == "nhwc" and what.mode == "spatial_persistent" else _channels_first
    nbytes = 2.0 * prod(what.x) * dtype_nbytes(what.dtype)
    return both(gpu, lambda machine: ns(machine, what), model="batch norm of cuDNN", nbytes=nbytes)


def _channels_first(machine: Machine, what: Norm) -> float:
    """The time of batch norm, channels first. Forward: statistics, then the output. Backward: x and dy are read for two
    sums and again for the gradient. Few channels leave SMs idle.
    """
    count, item, direction = prod(what.x), dtype_nbytes(what.dtype), what.direction
    channels, wide = max(what.x[1] if len(what.x) > 1 else 1, 1), item > 2
    of_channel, waves = count / channels, -(-channels // (machine.sms * CUDNN_BLOCKS))
    inputs = CHANNEL_PASSES[direction] - 1
    if what.layout == "nchw" and inputs * item * of_channel <= CHANNEL_NBYTES[wide]:
        copied = machine.memory_ns(CHANNEL_PASSES[direction] * count * item) / CHANNEL_STREAM
        odd = prod(what.x[2:]) % 2 * ODD_INSTRUCTIONS[direction][wide]
        alone = CHANNEL_NS + of_channel * CHANNEL_ELEMENT_NS[direction]
        return max(copied, machine.issue_ns(odd * count), alone)
    nbytes = CUDNN_NORM_PASSES[direction] * count * item
    beside = 1 + CUDNN_BESIDE[direction] * (min(-(-channels // machine.sms), CUDNN_BLOCKS) - 1)
    cold = min(inputs * count * item / (CUDNN_NEAR_L2 * machine.gpu.memory.l2_nbytes), 1.0)
    waits = CUDNN_CHANNEL_NS[direction][wide] * (1 - CUDNN_NEAR[direction] * (1 - cold**2))
    alone = of_channel * waits * beside if what.layout == "nchw" else 0.0
    issued = machine.issue_ns(CUDNN_INSTRUCTIONS[direction] * count)
    return max(machine.memory_ns(nbytes) / CUDNN_NORM_RATE, issued, waves * alone)


def sharing(what: Norm, most: int) -> tuple[int, int] | None:
    """The number of blocks that share the pixels of the same 64 channels, and how many such groups of channels run at
    once, of `most` blocks in all; None: the pixels do not fit. The grids of all 41 such kernels in two ResNets follow
    it (laboratory/rows/steps-h100.jsonl.gz).
    """
    pixels, slices = what.x[0] * prod(what.x[2:]), ceil(what.x[1] / CHANNELS)
    wide = dtype_nbytes(what.dtype) > 2
    fewest = ceil(pixels / KEPT_PIXELS[what.direction][wide])
    if fewest > most or not pixels:
        return None
    together = min(slices, most // fewest)
    share = ceil(pixels / (most // together) / PIXELS_APART) * PIXELS_APART
    return ceil(pixels / max(share, LEAST_PIXELS[what.direction][wide])), together


def _channels_last(machine: Machine, what: Norm) -> float:
    count, direction = prod(what.x), what.direction
    nbytes, channels = count * dtype_nbytes(what.dtype), max(what.x[1], 1)
    slices = ceil(channels / CHANNELS)
    full = slices * CHANNELS / channels  # with the channels that are missing from the last 64
    found = sharing(what, BLOCKS * machine.sms)
    passes, stream, waits = CUDNN_NORM_PASSES[direction], STREAM[direction], 0.0
    if found is not None:
        blocks, together = found
        waits = ceil(slices / together) * (ROUND_NS[direction] + ROUND_BLOCK_NS[direction] * blocks)
        passes, stream = KEPT_PASSES[direction], KEPT_STREAM
    if channels > CHANNELS and nbytes // (count // channels) % LINE_NBYTES:
        stream /= UNALIGNED  # 64 channels begin within a line of the cache
    single = found is None and channels > CHANNELS and channels % WHOLE_CHANNELS
    issued = SINGLE_INSTRUCTIONS[direction] * count if single else FULL_INSTRUCTIONS[direction] * count * full
    copied = machine.memory_ns(passes * nbytes) / stream
    return max(copied, machine.issue_ns(issued), passes * nbytes * full / machine.l2_gb_per_s) + waits
