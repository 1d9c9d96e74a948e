"""cuDNN's batch norm.

Channels first, a block sums a channel. Channels last, the GPU's blocks (two on an SM) share the pixels of 64 channels:
where what a block gets fits its registers and shared memory, x is read once, and all blocks of the same channels wait
for each other's sums in each round; where it does not fit, inputs are read a second time.
"""

from __future__ import annotations

from math import ceil, prod

from profiles.descriptions.gpu import Gpu
from profiles.models.machine import Estimate, Machine, both
from profiles.signature import Norm, dtype_nbytes

# Channels first: share of the streaming bandwidth, times that the input or the output pass, instructions an element.
CUDNN_NORM_RATE = 0.85
CUDNN_NORM_PASSES = {"fwd": 3, "bwd": 5}
CUDNN_INSTRUCTIONS, CUDNN_SHORT_INSTRUCTIONS, SHORT_CHANNEL = {"fwd": 121.0, "bwd": 136.0}, 91.0, 32_768
# One block's time per element of its channel, and blocks of an SM.
CUDNN_CHANNEL_NS = {"fwd": 0.55, "bwd": 1.6}
CUDNN_BLOCKS = 4
# Channels last: pixels that a block keeps at most, and gets at least, by direction, with 16 bits and with more.
CHANNELS, BLOCKS, PIXELS_APART = 64, 2, 32
KEPT_PIXELS = {"fwd": (384, 288), "bwd": (192, 192)}
LEAST_PIXELS = {"fwd": (160, 64), "bwd": (96, 96)}
KEPT_PASSES = {"fwd": 2, "bwd": 3}
KEPT_STREAM, STREAM = 0.9, {"fwd": 0.9, "bwd": 0.95}  # of the streaming bandwidth
LINE_NBYTES, UNALIGNED = 128, 1.25
# A round of sums that blocks wait for, and what each block that shares the channels adds.
ROUND_NS, ROUND_BLOCK_NS = {"fwd": 5_000.0, "bwd": 4_500.0}, {"fwd": 15.0, "bwd": 5.0}


def norm(gpu: Gpu, what: Norm) -> Estimate:
    ns = _channels_last if what.layout == "nhwc" and what.mode == "spatial_persistent" else _channels_first
    nbytes = 2.0 * prod(what.x) * dtype_nbytes(what.dtype)
    return both(gpu, lambda machine: ns(machine, what), model="batch norm of cuDNN", nbytes=nbytes)


def _channels_first(machine: Machine, what: Norm) -> float:
    """Forward: statistics, then the output. Backward: x and dy are read for two sums and again for the gradient. Few
    channels leave SMs idle.
    """
    count = prod(what.x)
    nbytes = CUDNN_NORM_PASSES[what.direction] * count * dtype_nbytes(what.dtype)
    channels = what.x[1] if len(what.x) > 1 else 1
    alone = count / max(channels, 1) * CUDNN_CHANNEL_NS[what.direction] if what.layout == "nchw" else 0.0
    waves = -(-channels // (machine.sms * CUDNN_BLOCKS))
    short = what.direction == "fwd" and count / max(channels, 1) <= SHORT_CHANNEL  # read once
    instructions = CUDNN_SHORT_INSTRUCTIONS if short else CUDNN_INSTRUCTIONS[what.direction]
    return max(machine.memory_ns(nbytes) / CUDNN_NORM_RATE, machine.issue_ns(instructions * count), waves * alone)


def sharing(what: Norm, most: int) -> tuple[int, int] | None:
    """Blocks that share the pixels of the same 64 channels, and how many such groups of channels run at once, of `most`
    blocks in all; None: the pixels do not fit. The grids of all 41 such kernels in two ResNets follow it
    (docs/data/steps-h100.jsonl.gz).
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
    nbytes, direction = prod(what.x) * dtype_nbytes(what.dtype), what.direction
    slices = ceil(what.x[1] / CHANNELS)
    full = nbytes * slices * CHANNELS / max(what.x[1], 1)  # with the channels that are missing from the last 64
    found = sharing(what, BLOCKS * machine.sms)
    passes, stream, waits = CUDNN_NORM_PASSES[direction], STREAM[direction], 0.0
    if found is not None:
        blocks, together = found
        waits = ceil(slices / together) * (ROUND_NS[direction] + ROUND_BLOCK_NS[direction] * blocks)
        passes, stream = KEPT_PASSES[direction], KEPT_STREAM
    if what.x[1] > CHANNELS and nbytes // (prod(what.x) // what.x[1]) % LINE_NBYTES:
        stream /= UNALIGNED  # 64 channels begin within a line of the cache
    return max(machine.memory_ns(passes * nbytes) / stream, passes * full / machine.l2_gb_per_s) + waits
