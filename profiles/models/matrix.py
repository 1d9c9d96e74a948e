"""GEMMs and convolutions: problem sizes in, tiles out."""

from __future__ import annotations

from math import prod

from profiles.descriptions.gpu import Gpu
from profiles.models.machine import Estimate, Machine, both
from profiles.models.tiles import product_ns
from profiles.signature import Conv, Gemm, dtype_nbytes

# cuDNN's implicit GEMMs next to a GEMM: share of its rate, share of streaming bandwidth, and helper kernels. Weights'
# gradients sum over all pixels, in parts that are added by a second kernel.
CONV_RATE = {"fwd": 1.0, "dgrad": 0.9, "wgrad": 1.0}
CONV_STREAM = {"fwd": 0.9, "dgrad": 0.9, "wgrad": 0.6}
CONV_START_NS = {"fwd": 0.0, "dgrad": 0.0, "wgrad": 15_000.0}
# Fewer channels than a 16-byte vector holds: padded by a kernel of their own, then multiplied by an older, slower
# kernel.
ALIGNED_CHANNELS = 8
UNALIGNED_RATE = {"fwd": 0.13, "dgrad": 0.13, "wgrad": 0.5}
# By the operands' dtype. `other` stands for dtypes that nobody knows: 4 bytes, as tf32's.
MULTIPLIED_AS = {
    "f64": "f64", "f32": "f32", "tf32": "tf32", "f16": "f16", "bf16": "bf16",
    "f8e4m3": "f8", "f8e5m2": "f8", "f8e8m0": "f8", "f6e2m3": "f8", "f6e3m2": "f8", "f4e2m1": "f8",
    "i64": "f64", "i32": "f32", "i16": "f32", "i8": "i8", "i4": "i8",
    "u64": "f64", "u32": "f32", "u16": "f32", "u8": "i8", "u4": "i8",
    "b8": "i8", "i8x4": "i8", "i8x32": "i8", "u8x4": "i8",
    "c32": "f16", "c32bf": "bf16", "c64": "f32", "c128": "f64",
    "other": "tf32",
}  # fmt: skip


def gemm(gpu: Gpu, what: Gemm) -> Estimate:
    dtype = math_dtype(what.a, what.compute)
    a, b, c = (dtype_nbytes(one) for one in (what.a, what.b, what.c))
    nbytes = what.batch * (what.m * what.k * a + what.k * what.n * b + what.m * what.n * c)
    parts = 4 if what.a.startswith("c") else 1  # a complex product is four real ones

    def ns(machine: Machine) -> float:
        return parts * product_ns(machine, dtype, what.m, what.n, what.k, what.batch, nbytes=nbytes)

    return both(gpu, ns, parts * 2.0 * what.m * what.n * what.k * what.batch)


def math_dtype(operand: str, compute: str) -> str:
    """The dtype whose peak rate applies: tf32 for f32 operands where the call allows it, that of the parts for complex
    ones, the next wider one where a GPU's description has no figure.
    """
    if operand in ("f32", "c64") and compute == "tf32":
        return "tf32"
    return MULTIPLIED_AS.get(operand, MULTIPLIED_AS["other"])


def conv(gpu: Gpu, what: Conv) -> Estimate:
    """An implicit GEMM per group: output channels x pixels x filter volume, and its two gradients."""
    groups = max(what.groups, 1)
    taps = prod(what.w[2:])
    out_channels, in_channels = what.w[0] // groups or 1, what.w[1]
    pixels_in = what.x[0] * prod(what.x[2:])
    pixels_out = what.y[0] * prod(what.y[2:])
    flops = 2.0 * groups * out_channels * pixels_out * in_channels * taps
    m, n, k = {
        "fwd": (out_channels, pixels_out, in_channels * taps),
        # Every input pixel gathers from the taps that reach it: with strides fewer than all of them.
        "dgrad": (in_channels, pixels_in, max(round(out_channels * taps * pixels_out / max(pixels_in, 1)), 1)),
        "wgrad": (out_channels, in_channels * taps, pixels_out),
    }[what.direction]
    item = dtype_nbytes(what.dtype)
    # A strided 1x1 filter skips input pixels.
    touched = min(prod(what.x), pixels_out * what.x[1] * taps)
    nbytes = item * (touched + prod(what.w) + prod(what.y)) / CONV_STREAM[what.direction]
    rate = CONV_RATE[what.direction]
    padded = 0.0
    if in_channels < ALIGNED_CHANNELS and groups == 1:
        k = k * ALIGNED_CHANNELS // in_channels if what.direction == "fwd" else k
        n = n * ALIGNED_CHANNELS // in_channels if what.direction == "wgrad" else n
        padded = item * prod(what.x) * (1 + ALIGNED_CHANNELS / in_channels)
        rate = UNALIGNED_RATE[what.direction]
    dtype = math_dtype(what.dtype, "")

    def ns(machine: Machine) -> float:
        start = CONV_START_NS[what.direction] + (machine.memory_ns(padded) if padded else 0.0)
        return start + product_ns(machine, dtype, m, n, k, groups, nbytes=nbytes, efficiency=rate)

    return both(gpu, ns, flops)
