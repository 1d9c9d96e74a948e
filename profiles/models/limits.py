"""Bounds every estimate: no kernel is faster than the GPU's peak, or a hundred times slower than its bytes and products
need.

A model outside these bounds is wrong for this work. Its estimate is moved to the bound and says so.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from profiles.descriptions.gpu import Gpu
from profiles.models.machine import Estimate
from profiles.signature import Conv, Gemm, Grouped, Kernel, Norm, Signature, Triton, elements

SLOWEST = 100.0  # times what the work needs at peak rates, and a launch
SAVED = 4.0  # Winograd's and Fourier transforms save so many of a 32-bit convolution's products
THREAD_NBYTES = 512.0  # a thread may stride over so much
ITEM_NBYTES = 8.0


def bounded(gpu: Gpu, what: Signature, found: Estimate) -> Estimate:
    least = least_ns(gpu, what, found)
    if found.solo_ns < least:
        return _moved(found, least, "faster than the peak rate")
    most = _most_ns(gpu, what, found, least)
    if found.solo_ns > most:
        return _moved(found, most, f"over {SLOWEST:.0f} times what the work needs")
    return found


def least_ns(gpu: Gpu, what: Signature, found: Estimate) -> float:
    """The ns that the work needs at the datasheet's rates. Data that fits the L2 cache need not come from memory."""
    flops = found.flops / SAVED if isinstance(what, Conv) and what.dtype == "f32" else found.flops
    products = flops / gpu.peak_flops(found.peak) * 1e9 if found.peak else 0.0
    return max(products, max(found.nbytes - gpu.memory.l2_nbytes, 0.0) / gpu.memory.bandwidth_gb_per_s)


def _most_ns(gpu: Gpu, what: Signature, found: Estimate, least: float) -> float:
    nbytes, idle = found.nbytes, 1.0
    if found.is_chain:
        return float("inf")
    if isinstance(what, Kernel | Triton | Grouped):
        said = ITEM_NBYTES * sum(elements(shape) for shape in what.sizes if shape)
        nbytes = max(nbytes, said, THREAD_NBYTES * prod(what.grid) * prod(what.block))
        idle = max(idle, gpu.sm_count / max(prod(what.grid), 1))  # blocks for so many SMs, each with its share
    elif not isinstance(what, Gemm | Norm):
        # A recurrent network waits for its steps, a convolution of few channels multiplies by zeros, attention computes
        # whole tiles of 128 x 128 for sequences of 40, and of other library calls little is known.
        return float("inf")
    return SLOWEST * (gpu.achieved.kernel_floor_ns + least + idle * nbytes / gpu.memory.bandwidth_gb_per_s)


def _moved(found: Estimate, bound_ns: float, why: str) -> Estimate:
    slowdown = found.contended_ns / found.solo_ns if found.solo_ns > 0 else 1.0
    return replace(
        found, solo_ns=bound_ns, contended_ns=bound_ns * slowdown, unknown=f"the model `{found.model}` is {why}"
    )
