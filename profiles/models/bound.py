"""Finds the resource that bounds a kernel: the products it computes, the bytes it moves, or its launch and the latency
of memory.
"""

from __future__ import annotations

from profiles.descriptions.gpu import Gpu
from profiles.models.machine import Estimate
from profiles.signature import Copy, Signature

BUSY = 0.25
"""The share of a kernel's time that its bytes or products need at peak rates from which on they bound it."""
SHORT = 3.0
"""The factor on the floor of a launch. Where the model does not give the bytes, longer work counts as moving data."""


def bound_by(gpu: Gpu, what: Signature, found: Estimate) -> str:
    """The bound: `compute`, `memory`, `pcie` or `latency` (the work is too small, or too serial, to use the GPU's
    rates).
    """
    if found.solo_ns <= SHORT * found.kernels * gpu.achieved.kernel_floor_ns:
        return "latency"
    if isinstance(what, Copy) and what.direction in ("h2d", "d2h"):
        return "pcie"
    products_ns = found.flops / gpu.peak_flops(found.peak) * 1e9 if found.peak else 0.0
    if not products_ns and not found.nbytes:
        return "memory"
    moved_ns = found.nbytes / gpu.memory.bandwidth_gb_per_s
    if max(products_ns, moved_ns) < BUSY * found.solo_ns:
        return "latency"
    return "compute" if products_ns >= moved_ns else "memory"
