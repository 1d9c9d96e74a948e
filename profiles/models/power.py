"""How much power a kernel draws at the full clock, and how much of its time grows when the clock falls.

A GPU whose kernels of the last tens of milliseconds would draw more than its limit lowers its clock. Who follows the
kernels of a rank in order (emu/hook/costs/power.c) can tell when: costs alone cannot. Watts were read off H200s that
ran one kind of kernel for a second, and are shares of that GPU's limit here; docs/costs.md has them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from profiles.descriptions.gpu import Gpu
from profiles.models.machine import Estimate
from profiles.signature import Kernel, Signature

BUSY_TENSOR_CORES = 0.80
"""Share of the peak rate at which products draw most."""
PRODUCTS = (0.43, 0.92)
"""With idle tensor cores, and more with busy ones; shares of the limit."""
CONVOLUTION = (0.64, 0.71)
ATTENTION = (0.64, 0.89)
OTHERS = {
    "softmax": 0.95,
    "loss": 0.95,
    "layer norm": 0.95,
    "batch norm": 0.61,
    "element-wise, cast": 0.73,
    "element-wise, strided": 0.72,
    "reduction": 0.80,
    "memory fill": 0.49,
}
HALF_PRECISION = 0.84
"""Element-wise kernels of 16-bit numbers: twice the instructions for the same bytes."""
FUNCTIONS = 1.04
"""The same, with exponentials and their like."""
MEMORY = 0.75
"""Any other kernel that keeps the memory busy."""
SHORT_NS = 20_000
"""A kernel outside the tensor cores that is shorter draws less in proportion: it does not fill the GPU all the time."""
CLOCKED_ATTENTION = 1.5
CLOCKED_NORM = 0.4


@dataclass(frozen=True, slots=True)
class Draw:
    """``power``: share of the GPU's limit, at the full clock. ``clocked``: how its time grows with the clock's period,
    relative to a large matrix product's.
    """

    power: float
    clocked: float


NOTHING = Draw(0.0, 0.0)
"""Of a GPU whose power is not described."""


def draw(gpu: Gpu, what: Signature, found: Estimate) -> Draw:
    if gpu.power is None:
        return NOTHING
    if found.peak in ("", "f32", "f64"):
        return _outside_tensor_cores(gpu, what, found)
    busy = min(found.flops / gpu.peak_flops(found.peak) * 1e9 / max(found.solo_ns, 1.0) / BUSY_TENSOR_CORES, 1.0)
    if found.model.startswith("attention"):
        least, more = ATTENTION
        return Draw(least + more * busy, CLOCKED_ATTENTION)
    least, more = CONVOLUTION if found.model.startswith("convolution") else PRODUCTS
    return Draw(least + more * busy, 1.0)


def _outside_tensor_cores(gpu: Gpu, what: Signature, found: Estimate) -> Draw:
    assert gpu.power is not None
    power = OTHERS.get(found.model, MEMORY)
    if found.model == "element-wise" and isinstance(what, Kernel) and re.search("BFloat16|Half", what.name):
        power = FUNCTIONS if re.search("(?i)gelu|silu|tanh|sigmoid|exp|erf|pow", what.name) else HALF_PRECISION
    elif found.flops and found.peak:
        power = 1.0  # products in f32 and f64: at the limit, and just not over it
    idle = gpu.power.idle_w / gpu.power.limit_w
    power = idle + max(power - idle, 0.0) * min(found.solo_ns / SHORT_NS, 1.0)
    return Draw(power, CLOCKED_NORM if found.model == "layer norm" else 0.0)
