"""Which model prices which signature."""

from __future__ import annotations

from math import prod

from profiles.estimate import Estimate, streaming
from profiles.gpu import Gpu
from profiles.signature import ITEM_NBYTES, Conv, Copy, Gemm, Kernel, Library, Memset, Norm, Sdpa, Signature
from profiles.tiles import matmul


def estimate(gpu: Gpu, what: Signature) -> Estimate:
    match what:
        case Gemm():
            dtype = "tf32" if what.a == "f32" and "tf32" in what.compute.lower() else what.a
            return matmul(gpu, dtype, what.m, what.n, what.k, what.batch, ITEM_NBYTES[what.c])
        case Conv():
            return _conv(gpu, what)
        case Sdpa():
            return _sdpa(gpu, what)
        case Norm():
            passes = 2 if what.direction == "fwd" else 3
            return streaming(gpu, passes * prod(what.x) * ITEM_NBYTES[what.dtype])
        case Library():
            nbytes = what.nbytes or 4 * sum(prod(shape) for shape in what.sizes)
            return streaming(gpu, nbytes)
        case Kernel():
            return _kernel(gpu, what)
        case Copy():
            return _copy(gpu, what)
        case Memset():
            return streaming(gpu, what.nbytes)


def _kernel(gpu: Gpu, what: Kernel) -> Estimate:
    threads = prod(what.grid) * prod(what.block)
    nbytes = 4 * sum(prod(shape) for shape in what.sizes) or 16 * threads
    return streaming(gpu, nbytes)


def _conv(gpu: Gpu, what: Conv) -> Estimate:
    out_channels = what.w[0]
    reduce = prod(what.w[1:])
    pixels = prod(what.y) // max(what.y[1], 1)
    m, n, k = {"fwd": (out_channels, pixels, reduce), "dgrad": (what.x[1], pixels, prod(what.w) // max(what.w[1], 1)),
               "wgrad": (out_channels, reduce, pixels)}[what.direction]  # fmt: skip
    return matmul(gpu, what.dtype, max(m // what.groups, 1), n, k, what.groups, ITEM_NBYTES[what.dtype])


def _sdpa(gpu: Gpu, what: Sdpa) -> Estimate:
    batch, heads, queries, depth = what.q[-4:]
    keys = what.k[-2]
    products = 2 if what.direction == "fwd" else 5
    flops = products * 2.0 * batch * heads * queries * keys * depth * (0.5 if what.causal else 1.0)
    solo = gpu.achieved.kernel_floor_ns + flops / (gpu.peak_flops(what.dtype) * 0.45) * 1e9
    return Estimate(solo, solo * gpu.sm_count / (gpu.sm_count - gpu.nccl_sms), flops)


def _copy(gpu: Gpu, what: Copy) -> Estimate:
    if what.direction in ("h2d", "d2h", "h2h"):
        rate = gpu.pcie.pinned_gb_per_s if what.pinned else gpu.pcie.pageable_gb_per_s
        ns = gpu.pcie.latency_ns + what.nbytes / rate
        return Estimate(ns, ns)
    return streaming(gpu, 2 * what.nbytes)
