"""Models cuDNN's depthwise convolutions: one filter per channel, without tensor cores."""

from __future__ import annotations

from math import prod

from profiles.descriptions.gpu import Gpu
from profiles.models.machine import Estimate, Machine, both, overlapped
from profiles.models.products.group_ways import FEWEST_CHANNELS
from profiles.signature import Conv, dtype_nbytes

STREAM = 0.87  # share of the streaming bandwidth
# Instructions per output and per product, by direction.
DEPTHWISE_OUTPUT = {"fwd": 8.6, "dgrad": 7.5, "wgrad": 45.0}
DEPTHWISE_TAP = {"fwd": 6.1, "dgrad": 11.2, "wgrad": 3.9}
DEPTHWISE_STRIDED = {"fwd": 1.6, "dgrad": 1.0, "wgrad": 2.0}  # as many, where windows share less of what is loaded
DEPTHWISE_WIDE, WIDE_TAPS = 207.0, 25  # f32, gradients of filters with more taps than these: a kernel of its own
DEPTHWISE_DTYPE = {"f16": 0.7, "tf32": 1.25, "f32": 1.25}  # times as many instructions; f16 does two operations at once
CHANNELS_FIRST = 2.0  # time over that of channels-last data
# Channels last, more taps than its own kernels have: instructions of a tap that is in the image, of an output.
MOST_TAPS, DIRECT_TAP, DIRECT_TAP_HALF, DIRECT_DATA_TAP, PADDED_OUTPUT = 49, 148.0, 66.0, 54.0, 6_650.0


def depthwise(gpu: Gpu, what: Conv, flops: float) -> Estimate:
    """The estimate of a convolution with one filter per channel. The gradient of the data visits the taps of every
    input pixel, with a stride in vain.
    """
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
        if taps > MOST_TAPS and what.layout == "nhwc" and (direct := _direct(what, outputs)):
            return machine.issue_ns(direct)
        work = overlapped(machine.memory_ns(nbytes) / STREAM, machine.issue_ns(per_output * outputs))
        sums = gpu.achieved.kernel_floor_ns + 2_500.0 if what.direction == "wgrad" else 0.0
        return work * (CHANNELS_FIRST if what.layout == "nchw" else 1.0) + sums

    return both(
        gpu, ns, flops, model="depthwise convolution", kernels=2 if what.direction == "wgrad" else 1, nbytes=nbytes
    )


def _direct(what: Conv, outputs: int) -> float:
    """The number of instructions without cuDNN's kernels for filters of up to 7x7; 0: not one of these. Taps outside of
    the image are left out. Gradients of weights of 16 bits are padded and multiplied, whatever the taps.
    """
    if what.direction == "wgrad":
        return outputs * PADDED_OUTPUT if what.dtype in ("f16", "bf16") else 0.0
    if what.dtype == "f32":
        return 0.0
    inside = prod(map(_inside, what.x[2:], what.w[2:], what.y[2:], what.padding, what.stride, what.dilation))
    tap = DIRECT_DATA_TAP if what.direction == "dgrad" else DIRECT_TAP_HALF if what.dtype == "f16" else DIRECT_TAP
    return outputs * tap * inside


def _inside(pixels: int, taps: int, outputs: int, padding: int, stride: int, dilation: int) -> float:
    """The mean number of a line's taps that are in the image, over its outputs."""
    found = 0
    for output in range(outputs):
        first = output * stride - padding
        before = -(first // dilation) if first < 0 else 0
        found += max(min((pixels - 1 - first) // dilation + 1, taps) - before, 0)
    return found / max(outputs, 1)
