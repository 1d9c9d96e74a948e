"""Models matrix products as a GPU runs them: output tiles dealt to SMs, each tile's main loop as long as k.

    time = start + tiles of the busiest SM x (k x time of a step + time of a tile) + sum of the parts of a split k

over the tile shapes and splits of k that a library chooses among. It is assumed to choose the fastest for a GPU that
it has to itself. Memory traffic overlaps the main loop: the cubic root of the sum of cubes. docs/costs.md says how an
engine's figures were found.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import product as pairs

import numpy as np
from numpy.typing import NDArray

from profiles.models.machine import Machine
from profiles.models.power import product_in_a_job

Floats = NDArray[np.float64]
COLD = 0.6  # share of the operands that come from memory even if they would fit the L2 cache
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
PARTIAL_NBYTES = 8.0  # a partial sum in f32 is written and read once
COUNTED_FROM = 2  # tiles for each SM; more are dealt out by a counter
MOST_LATENCY_HIDDEN = 4.0  # tiles of one SM whose steps overlap, where each waits for its own latency


@dataclass(frozen=True, slots=True)
class Engine:
    """One kind of kernel that multiplies matrices, with the figures that describe its inner loop."""

    name: str
    shapes: tuple[tuple[int, int], ...]
    rate: float
    """The share of `Machine.tensor_flops_per_ns` that the largest tiles reach."""
    feed: float
    """The loss of rate from loading operands, in elements: a tile of m x n runs 1 + feed (1/m + 1/n) times longer."""
    narrow: float
    """The least length that a tile's shorter side counts as: narrower instructions take as long."""
    alone: float
    """The share of the rate that a tile reaches if its SM has no second one to switch to."""
    step_ns: float
    """The least time of one step of k: the latency of a chain of dependent instructions."""
    tile_ns: float
    """The time of a tile beside its main loop: prologue and epilogue, as far as the next tile does not hide them."""
    element_ns: float
    """The time beside the main loop per element of the tile."""
    start_ns: float
    """The time before the first tile's main loop and after the last one's, without the floor of a launch."""
    split_ns: float
    """The floor of the kernel that adds the parts of a split k."""
    least_k: int = 256
    """The shortest k of a part."""


def shapes(long: tuple[int, ...], short: tuple[int, ...], most: int) -> tuple[tuple[int, int], ...]:
    """The tiles of both orientations whose accumulators fit the register file."""
    fitting = {(a, b) for a, b in pairs(long, short) if a * b <= most}
    return tuple(sorted(fitting | {(b, a) for a, b in fitting}))


# Tile shapes as profiles of real runs name them (nvjet_sm90_tst_256x128_..., sm80_xmma_gemm_..._tilesize128x64x8_...).
WIDE = shapes((64, 128, 192, 256, 320), (8, 16, 24, 32, 48, 64, 96, 112, 128, 144, 160, 192, 256), 320 * 128)
MEDIUM = shapes((64, 128, 256), (64, 128), 256 * 128)
SMALL = shapes((32, 64, 128, 256), (32, 64, 128), 256 * 128)

TENSOR_16 = Engine("tensor 16 bit", WIDE, 0.942, 2.97, 84.0, 1.0, 0.0, 295.0, 0.0336, 950.0, 2200.0)
TENSOR_8 = Engine("tensor 8 bit", WIDE, 0.919, 3.75, 99.0, 1.0, 0.0, 246.0, 0.0221, 1100.0, 2600.0, 512)
# Without fast accumulation, as gradients of 8 bits are computed: each tile has two accumulators, one of them for 128
# steps of k, so that tiles are smaller.
TENSOR_8_EXACT = replace(
    TENSOR_8,
    name="tensor 8 bit, exact",
    shapes=shapes((64, 96, 128, 192, 256, 320), (64, 112, 128, 144, 160), 160 * 128),
    rate=0.89,
    element_ns=0.03,
)
TENSOR_TF32 = Engine("tensor tf32", MEDIUM, 0.978, 3.39, 34.5, 0.80, 6.2, 460.0, 0.0512, 2600.0, 900.0)
TENSOR_F64 = Engine("tensor f64", SMALL, 1.25, 3.36, 9.4, 0.78, 3.7, 667.0, 0.0953, 600.0, 2400.0)
VECTOR_F32 = Engine("vector f32", SMALL, 1.223, 20.4, 10.5, 0.605, 18.7, 176.0, 0.135, 1280.0, 200.0)
# Leading dimensions that are no multiple of 16 bytes: kernels of older GPUs, without asynchronous copies.
UNALIGNED = Engine("tensor unaligned", SMALL, 0.30, 3.0, 32.0, 0.8, 9.0, 400.0, 0.05, 1500.0, 2500.0)
# The same where items are loaded one by one: rows of an odd number of 16-bit items.
SINGLE_ITEMS = replace(UNALIGNED, name="tensor single items", rate=0.162)

# The engines that cuBLAS takes for a product of matrices, by the engine for unaligned rows and whether operands have 32
# bits, with their time by how many operands have k innermost.
LOOSE = {
    (UNALIGNED.name, False): (
        Engine("product unaligned", SMALL, 0.39, 42.0, 90.0, 1.0, 3.73, 314.0, 0.0473, 1793.0, 189.0),
        (1.0, 1.02, 1.081),
    ),
    (UNALIGNED.name, True): (
        Engine("product unaligned tf32", MEDIUM, 0.305, 27.6, 31.2, 0.822, 5.7, 390.0, 0.141, 4840.0, 1270.0),
        (1.0, 0.958, 0.832),
    ),
    (SINGLE_ITEMS.name, False): (
        Engine("product single items", SMALL, 0.165, 3.56, 125.0, 0.912, 8.5, 128.0, 0.191, 1670.0, 2750.0),
        (1.0, 1.05, 1.259),
    ),
}

NEVER_NS = 1e9
# Kernels for many small products, beside those above; neither splits k.
BATCHED = {
    UNALIGNED.name: Engine(
        "small products unaligned", SMALL, 0.30, 62.8, 36.8, 1.0, 4.85, 439.0, 0.0744, 1356.0, NEVER_NS
    ),
    SINGLE_ITEMS.name: Engine(
        "small products single items", SMALL, 0.0578, 10.2, 40.0, 0.35, 8.5, 128.0, 0.0262, 661.0, NEVER_NS
    ),
}

# Tensor cores take 32-bit operands with k innermost: where neither has it so, both are turned round in shared memory.
# That costs multiplications and tiles, not what passes the memory.
TURNING = 1.7
TURNED_TF32 = replace(
    TENSOR_TF32,
    name="tensor tf32, turned",
    rate=TENSOR_TF32.rate / TURNING,
    step_ns=TENSOR_TF32.step_ns * TURNING,
    tile_ns=TENSOR_TF32.tile_ns * TURNING,
    element_ns=TENSOR_TF32.element_ns * TURNING,
)

COUNTED = (TENSOR_16, TENSOR_8, TENSOR_8_EXACT, TENSOR_TF32, TURNED_TF32)
"""The engines of kernels written for Hopper."""


def product_ns(
    machine: Machine, engine: Engine, dtype: str, m: int, n: int, k: int, batch: int = 1, *, nbytes: float
) -> float:
    """The time of `batch` products of m x k by k x n, without the floor of a launch. `nbytes`: operands and result,
    once.
    """
    return product(machine, engine, dtype, m, n, k, batch, nbytes=nbytes)[0]


def product(
    machine: Machine, engine: Engine, dtype: str, m: int, n: int, k: int, batch: int = 1, *, nbytes: float
) -> tuple[float, int]:
    """The time, and how many kernels it takes: parts of k are summed by a second one, and more tiles than two for
    each SM are dealt out by a counter that a memory fill resets.
    """
    memory = machine.memory_ns(nbytes, cold=COLD)
    if not m * n * k * batch:
        return memory, 1
    size = (float(m), float(n), float(k), float(batch))
    whole, here = machine.gpu.sm_count, machine.sms
    plans = _plans(engine, _most_parts(engine, k))
    kernels = np.where(plans.split > 1, 2, 1)
    if machine.gpu.products_by_warp_groups and engine in COUNTED:
        counted = (plans.split == 1) & (plans.tiles(m, n) * batch > COUNTED_FROM * whole)
        kernels = np.where(counted, 2, kernels)
    times = _times(machine, engine, dtype, size, whole, memory, plans)
    best = int(np.argmin(times + machine.gpu.achieved.launch_gap_ns * kernels))
    time = float(times[best])
    if here != whole:
        time = float(_times(machine, engine, dtype, size, here, memory, plans.one(best))[0])
    hotter = product_in_a_job(m, n, k) if engine in COUNTED else 1.0
    return time * hotter, int(kernels[best])


def _most_parts(engine: Engine, k: int) -> int:
    """The most parts into which a library splits k: each must be long enough."""
    return max((split for split in SPLITS if k >= split * engine.least_k), default=1)


@dataclass(frozen=True, slots=True)
class _Plans:
    """Plans of a product in columns: an item for each plan, and the figures that do not depend on the product."""

    high: Floats
    wide: Floats
    split: Floats
    """The number of parts of k."""
    step: Floats
    """The operations of a step of k, increased by the time in which operands are loaded."""
    tile_ns: Floats
    """The time of a tile, beside its main loop."""

    def tiles(self, m: float, n: float) -> Floats:
        found: Floats = np.ceil(m / self.high) * np.ceil(n / self.wide)
        return found

    def one(self, at: int) -> _Plans:
        return _Plans(*(getattr(self, field.name)[at : at + 1] for field in fields(self)))


@lru_cache(maxsize=256)
def _plans(engine: Engine, most_parts: int) -> _Plans:
    splits = [split for split in SPLITS if split <= most_parts]
    found = [(m, n, split) for (m, n), split in pairs(engine.shapes, splits)]
    high, wide, split = np.array(found, dtype=np.float64).T
    area = np.maximum(high, wide) * np.maximum(np.minimum(high, wide), engine.narrow)
    step = 2.0 * area * (1 + engine.feed * (1 / high + 1 / wide))
    return _Plans(high, wide, split, step, engine.tile_ns + engine.element_ns * high * wide)


def _waves(machine: Machine, engine: Engine, tiles: Floats, sms: int) -> Floats:
    """The number of tiles that are computed one after the other until the last one is done.

    Kernels written for Hopper have one block for each SM of the whole GPU, which stays there and computes several
    tiles: its first one by its number, further ones by its number or, if they are many, by a counter. Blocks that find
    no SM because NCCL holds some begin with their first tile when the others are done.
    """
    whole = machine.gpu.sm_count
    waves: Floats = np.ceil(tiles / sms)
    if sms >= whole or not machine.gpu.products_by_warp_groups or engine not in COUNTED:
        return waves
    counted = np.ceil((tiles - whole + sms) / sms) + 1
    fewest, longer = np.floor(tiles / whole), tiles % whole
    first_ends = np.where(sms - longer >= whole - sms, fewest, fewest + 1)
    numbered = np.maximum(np.ceil(tiles / whole), first_ends + np.ceil(np.maximum(tiles - sms, 0.0) / whole))
    return np.where(tiles > COUNTED_FROM * whole, counted, numbered)


def _times(
    machine: Machine,
    engine: Engine,
    dtype: str,
    size: tuple[float, float, float, float],
    sms: int,
    memory: float,
    plans: _Plans,
) -> Floats:
    m, n, k, batch = size
    tiles = plans.tiles(m, n) * batch * plans.split
    per_sm = tiles / sms
    beside = engine.alone + (1 - engine.alone) * np.clip(per_sm - 1, 0.0, 1.0) if engine.alone < 1 else 1.0
    step = plans.step / (machine.tensor_flops_per_ns(dtype) * engine.rate * beside)
    if engine.step_ns:
        step = np.maximum(step, engine.step_ns / np.clip(per_sm, 1.0, MOST_LATENCY_HIDDEN))
    loop = _waves(machine, engine, tiles, sms) * (np.ceil(k / plans.split) * step + plans.tile_ns)
    time = engine.start_ns + np.cbrt(loop * loop * loop + memory**3)
    sums = engine.split_ns + PARTIAL_NBYTES * plans.split * m * n * batch / machine.l2_gb_per_s
    added: Floats = time + np.where(plans.split > 1, sums, 0.0)
    return added
