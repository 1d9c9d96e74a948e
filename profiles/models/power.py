"""Models the power that a kernel draws at the full clock, and how much of its time grows when the clock falls.

A GPU whose kernels of the last tens of milliseconds would draw more than its limit lowers its clock. Costs alone do not
show when; a reader that follows the kernels of a rank in order does (emu/hook/costs/power.c). Watts were read off H200s
that ran one kind of kernel for a second; docs/costs.md has them.

Two models know more: products and attention are a little slower inside a training job than in a first call, even where
the limit is not reached. The factors for that are here, too, and are part of their time at the full clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from profiles.descriptions.gpu import Gpu
from profiles.models.machine import Estimate
from profiles.signature import Kernel, Signature

BUSY_TENSOR_CORES = 0.80
"""The share of the peak rate at which products draw most."""
PRODUCTS = (0.32, 0.68)
"""The power of products with idle tensor cores, and the additional power with busy ones. These and the following
powers are shares of the power of large products.
"""
OF_F16 = 1.16
"""The power of busy tensor cores for products of f16, over bf16: their mantissas are three bits longer. An H200 runs
the same product of f16 at 0.94 of the clock of one of bf16 once both are at the limit.
"""
CONVOLUTION = (0.475, 0.525)
ATTENTION = (0.475, 0.66)
WITHOUT_TENSOR_CORES = 0.73
"""The power of products in f32 and f64."""
OTHERS = {
    "softmax": 0.70,
    "loss": 0.70,
    "layer norm": 0.70,
    "batch norm": 0.45,
    "element-wise, cast": 0.54,
    "element-wise, strided": 0.53,
    "reduction": 0.59,
    "memory fill": 0.36,
}
HALF_PRECISION = 0.62
"""The power of element-wise kernels of 16-bit numbers: twice the instructions for the same bytes."""
FUNCTIONS = 0.77
"""The power of element-wise kernels of 16-bit numbers with exponentials and their like."""
MEMORY = 0.55
"""The power of any other kernel that keeps the memory busy."""
SHORT_NS = 20_000
"""The time in ns below which a kernel outside the tensor cores draws less in proportion: it does not fill the GPU all
the time.
"""
CLOCKED_ATTENTION = 1.5
CLOCKED_NORM = 0.4
CLOCKED_ADAM, CLOCKED_ADAM_HALF = 0.1, 0.45
"""The share of the time of Adam and AdamW, as one kernel, that depends on the clock, for 32 and for 16-bit numbers: the
latter move half the bytes for the same instructions.
"""
COOL, HOT, HOTTEST = 600.0, 1800.0, 0.03
"""Two arithmetic intensities of products, and the relative additional time of those at HOT inside a job."""
HOTTER_PER_DEPTH = 0.0006
"""The relative additional time of attention inside a job, by the depth of a head."""


@dataclass(frozen=True, slots=True)
class Draw:
    """The power of a kernel. ``power``: its share of the GPU's limit, at the full clock. ``clocked``: how its time
    grows with the clock's period, relative to a large matrix product's.
    """

    power: float
    clocked: float


NOTHING = Draw(0.0, 0.0)
"""The draw on a GPU whose power is not described."""


def product_in_a_job(m: int, n: int, k: int) -> float:
    """The time of a product on the tensor cores in a job over that of a first call. It grows with the arithmetic
    intensity, since jobs of large products spend more of their time in them.
    """
    intensity = 1 / (1 / m + 1 / n + 1 / k)
    return 1 + HOTTEST * min(max((intensity - COOL) / (HOT - COOL), 0.0), 1.0)


def attention_in_a_job(depth: int) -> float:
    """The time of attention in a job over that of a first call."""
    return 1 + HOTTER_PER_DEPTH * depth


def draw(gpu: Gpu, what: Signature, found: Estimate) -> Draw:
    if gpu.power is None:
        return NOTHING
    if found.peak in ("", "f32", "f64"):
        busy_w = gpu.power.product_w * _outside_tensor_cores(what, found)
        drawn_w = gpu.power.idle_w + max(busy_w - gpu.power.idle_w, 0.0) * min(found.solo_ns / SHORT_NS, 1.0)
        return Draw(gpu.power.hunger * drawn_w / gpu.power_limit_w, _clocked(what, found))
    busy = min(found.flops / gpu.peak_flops(found.peak) * 1e9 / max(found.solo_ns, 1.0) / BUSY_TENSOR_CORES, 1.0)
    clocked = 1.0
    least, more = PRODUCTS
    if found.model.startswith("attention"):
        least, more = ATTENTION
        clocked = CLOCKED_ATTENTION
    elif found.model.startswith("convolution"):
        least, more = CONVOLUTION
    elif found.peak == "f16":
        more *= OF_F16
    drawn_w = (least + more * busy) * gpu.power.product_w
    return Draw(gpu.power.hunger * drawn_w / gpu.power_limit_w, clocked)


def _clocked(what: Signature, found: Estimate) -> float:
    """The share of the time of a kernel outside the tensor cores that depends on the clock."""
    if found.model == "optimizer" and isinstance(what, Kernel) and "Adam" in what.name:
        return CLOCKED_ADAM_HALF if re.search("BFloat16|Half", what.name) else CLOCKED_ADAM
    return CLOCKED_NORM if found.model == "layer norm" else 0.0


def _outside_tensor_cores(what: Signature, found: Estimate) -> float:
    """The power of a kernel outside the tensor cores, as a share of that of large products."""
    if found.flops and found.peak:
        return WITHOUT_TENSOR_CORES
    if found.model == "element-wise" and isinstance(what, Kernel) and re.search("BFloat16|Half", what.name):
        return FUNCTIONS if re.search("(?i)gelu|silu|tanh|sigmoid|exp|erf|pow", what.name) else HALF_PRECISION
    return OTHERS.get(found.model, MEMORY)
