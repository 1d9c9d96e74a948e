"""cuDNN's depthwise convolutions: one filter per channel, without tensor cores."""

from __future__ import annotations

from math import prod

from profiles.descriptions.gpu import Gpu
from profiles.models.machine import Estimate, Machine, both, overlapped
from profiles.models.products.group_ways import FEWEST_CHANNELS
from profiles.signature import Conv, dtype_nbytes

STREAM = 0.87  # of the streaming bandwidth
# Instructions per output and per product, by direction.
DEPTHWISE_OUTPUT = {"fwd": 8.6, "dgrad": 7.5, "wgrad": 45.0}
DEPTHWISE_TAP = {"fwd": 6.1, "dgrad": 11.2, "wgrad": 3.9}
DEPTHWISE_STRIDED = {"fwd": 1.6, "dgrad": 1.0, "wgrad": 2.0}  # as many, where windows share less of what is loaded
DEPTHWISE_WIDE, WIDE_TAPS = 207.0, 25  # of f32, for gradients of filters with more taps: a kernel of its own
DEPTHWISE_DTYPE = {"f16": 0.7, "tf32": 1.25, "f32": 1.25}  # of the instructions; f16: two operations at once
CHANNELS_FIRST = 2.0  # time over that of channels-last data


def depthwise(gpu: Gpu, what: Conv, flops: float) -> Estimate:
    """One filter per channel. The gradient of the data visits the taps of every input pixel, with a stride in vain."""
    taps = prod(what.w[2:])
    outputs = prod(what.x) if what.direction == "dgrad" else prod(what.y)
    item = dtype_nbytes(what.dtype)
    nbytes = item * (prod(what.x) + prod(what.y))

    def ns(machine: Machine) -> float:
        per_output = DEPTHWISE_OUTPUT[what.direction] + DEPTHWISE_TAP[what.direction] * taps
        if what.dtype != "f16" or what.groups % FEWEST_CHANNELS == 0:  # else the kernel for any type
            per_output *= DEPTHWISE_DTYPE.get(what.dtype, 1.0)
        if what.direction == "wgrad" and what.dtype in ("f32", "tf32") and taps > WIDE_TAPS:
            per_output = DEPTHWISE_WIDE * taps
        if max(what.stride) > 1:
            per_output *= DEPTHWISE_STRIDED[what.direction]
        work = overlapped(machine.memory_ns(nbytes) / STREAM, machine.issue_ns(per_output * outputs))
        sums = gpu.achieved.kernel_floor_ns + 2_500.0 if what.direction == "wgrad" else 0.0
        return work * (CHANNELS_FIRST if what.layout == "nchw" else 1.0) + sums

    return both(
        gpu, ns, flops, model="depthwise convolution", kernels=2 if what.direction == "wgrad" else 1, nbytes=nbytes
    )
