"""Matrix products as a GPU runs them: output tiles dealt to SMs in waves, each tile's main loop as long as k.

time = start + waves x (2 tm tn k / rate x (1 + feed (1/tm + 1/tn)) + fill), over the tile shapes and splits of k that a library
chooses among; it is assumed to choose well. `rate` is what one SM's tensor cores sustain, `feed` the loss from loading operands
(small tiles load more per product), `fill` the prologue and epilogue that the main loop does not hide.
"""

from __future__ import annotations

from math import ceil

from profiles.machine import Machine, overlapped

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

    `efficiency`: share of a GEMM's rate, for kernels whose operand addresses cost more (convolutions).
    """
    if not m * n * k * batch:
        return machine.memory_ns(nbytes)
    rate = machine.tensor_flops_per_ns(dtype) * efficiency
    best = float("inf")
    for tm, tn in TILES:
        tiles = ceil(m / tm) * ceil(n / tn) * batch
        per_k = 2.0 * tm * tn / rate * (1 + FEED * (1 / tm + 1 / tn))
        for split in SPLITS:
            if split > 1 and k < split * LEAST_K:
                break
            ns = ceil(tiles * split / machine.sms) * (k / split * per_k + FILL_NS)
            if split > 1:
                # Partial sums in f32, written and read once.
                ns += SPLIT_NS + machine.memory_ns(8.0 * split * m * n * batch)
            best = min(best, ns)
    return START_NS + overlapped(best, machine.memory_ns(nbytes))
