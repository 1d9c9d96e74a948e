"""Matrix products as a GPU runs them: output tiles dealt to SMs in waves, each tile's main loop as long as k.

time = start + waves x (2 tm tn k / rate x (1 + feed (1/tm + 1/tn)) + fill), over the tile shapes and splits of k that
a library chooses among; it is assumed to choose well. `rate` is what one SM's tensor cores sustain, `feed` the loss
from loading operands (small tiles load more per product), `fill` the prologue and epilogue that the main loop does
not hide.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from profiles.models.machine import Machine, overlapped

# cuBLAS's tile shapes on Hopper as profiles of real runs name them (nvjet_sm90_..._256x128_...), both ways round.
_SHAPES = (
    (256, 128),
    (192, 128),
    (192, 192),
    (320, 128),
    (128, 128),
    (160, 128),
    (128, 64),
    (96, 64),
    (64, 64),
    (256, 64),
)
TILES = tuple(sorted({shape for a, b in _SHAPES for shape in ((a, b), (b, a))}))
SPLITS = (1, 2, 4, 8)
LEAST_K = 512  # of one split

FEED = 4.0  # elements
FILL_NS = 1500.0
START_NS = 1700.0  # on top of an empty kernel's duration
SPLIT_NS = 1500.0  # the reduction's launch


def product_ns(
    machine: Machine, dtype: str, m: int, n: int, k: int, batch: int = 1, *, nbytes: float, efficiency: float = 1.0
) -> float:
    """Time of `batch` products of m x k by k x n. `nbytes`: operands and result, each once.

    `efficiency`: share of a GEMM's rate, for kernels whose operand addresses cost more (convolutions). The library
    chooses its tile for a whole GPU: it does not know that NCCL will be there.
    """
    memory = machine.memory_ns(nbytes)
    if not m * n * k * batch:
        return memory
    rate = machine.tensor_flops_per_ns(dtype) * efficiency
    whole = machine.gpu.sm_count
    plans = [_Plan(tm, tn, split) for tm, tn in TILES for split in SPLITS if split == 1 or k >= split * LEAST_K]
    best = min(plans, key=lambda plan: plan.loop_ns(rate, whole, m, n, k, batch) + plan.sum_ns(machine, m, n, batch))
    sms = machine.cluster_sms
    return START_NS + overlapped(best.loop_ns(rate, sms, m, n, k, batch), memory) + best.sum_ns(machine, m, n, batch)


@dataclass(frozen=True, slots=True)
class _Plan:
    tm: int
    tn: int
    split: int

    def loop_ns(self, rate: float, sms: int, m: int, n: int, k: int, batch: int) -> float:
        tiles = ceil(m / self.tm) * ceil(n / self.tn) * batch * self.split
        per_k = 2.0 * self.tm * self.tn / rate * (1 + FEED * (1 / self.tm + 1 / self.tn))
        return ceil(tiles / sms) * (k / self.split * per_k + FILL_NS)

    def sum_ns(self, machine: Machine, m: int, n: int, batch: int) -> float:
        """Partial sums in f32, written and read once."""
        return SPLIT_NS + machine.memory_ns(8.0 * self.split * m * n * batch) if self.split > 1 else 0.0
