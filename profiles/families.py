"""Which model prices which signature."""

from __future__ import annotations

from math import prod

from profiles.attention import sdpa
from profiles.gpu import Gpu
from profiles.kernels import kernel
from profiles.machine import Estimate, both
from profiles.matrix import conv, gemm
from profiles.signature import ITEM_NBYTES, Conv, Copy, Gemm, Kernel, Library, Memset, Norm, Sdpa, Signature, elements

COPY_START_NS = 1_000.0
FILL = 0.93  # pure writes need no turnaround of the memory bus
MEMSET_FLOOR = 0.6  # of a kernel's: the driver's own, without arguments to fetch


def estimate(gpu: Gpu, what: Signature) -> Estimate:
    match what:
        case Gemm():
            return gemm(gpu, what)
        case Conv():
            return conv(gpu, what)
        case Sdpa():
            return sdpa(gpu, what)
        case Norm():
            return _norm(gpu, what)
        case Library():
            nbytes = float(what.nbytes) or 4.0 * sum(elements(shape) for shape in what.sizes if shape)
            return both(gpu, lambda machine: machine.memory_ns(nbytes) / 0.8)
        case Kernel():
            return kernel(gpu, what)
        case Copy():
            return _copy(gpu, what)
        case Memset():
            return _memset(gpu, what)


def _norm(gpu: Gpu, what: Norm) -> Estimate:
    """cuDNN's batch norm: statistics and output forward; two sums and output backward, x and dy read for each."""
    count = prod(what.x) * ITEM_NBYTES[what.dtype]
    passes = 3 if what.direction == "fwd" else 5
    return both(gpu, lambda machine: machine.memory_ns(passes * count) / 0.85)


def _copy(gpu: Gpu, what: Copy) -> Estimate:
    """Over PCIe by copy engines, which NCCL over NVLink does not slow; on the device at streaming rate."""
    if what.direction in ("d2d", "p2p"):
        return both(gpu, lambda machine: COPY_START_NS + machine.memory_ns(2.0 * what.nbytes) / 0.93)
    rate = gpu.pcie.pinned_gb_per_s if what.pinned else gpu.pcie.pageable_gb_per_s
    ns = gpu.pcie.latency_ns + what.nbytes / rate
    return Estimate(ns, ns)


def _memset(gpu: Gpu, what: Memset) -> Estimate:
    found = both(gpu, lambda machine: FILL * machine.memory_ns(what.nbytes))
    less = gpu.achieved.kernel_floor_ns * (1 - MEMSET_FLOOR)
    return Estimate(found.solo_ns - less, found.contended_ns - less)
